"""Snapshots of predictions, which PyTorch's own viewer opens."""

import pickle
import pickletools

import pytest
import torch
from torch.cuda import _memory_viz

from memlab import predict
from memlab.errors import NotWritten
from memlab.nets import MLP
from tests.vgpu.test_bytes import train_gpt
from tests.vgpu.test_memory import train_pieces

# What `unpickle` in torch/utils/viz/MemoryViz.js reads, of all that Python writes.
READ_BY_THE_VIEWER = {
    *("APPEND", "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "FRAME", "LONG1"),
    *("LONG_BINGET", "MARK", "MEMOIZE", "PROTO", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE2", "NEWFALSE"),
    *("BINPUT", "BINUNICODE", "EMPTY_TUPLE", "NEWTRUE", "NONE", "BINFLOAT", "TUPLE", "TUPLE1", "TUPLE3", "SETITEM"),
}


def train_mlp(device, *, batch_size=8, width=512):
    model = MLP(2, width).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(torch.ones(batch_size, width, device=device)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


@pytest.fixture
def snapshot(tmp_path):
    """``snapshot(train, **options)`` gives a prediction and the snapshot that it has written."""

    def snapshot(train, **options):
        path = tmp_path / "run.pickle"
        trace = predict(train, snapshot=path, **options)
        return trace, pickle.loads(path.read_bytes())

    return snapshot


def allocated(snapshot):
    """Allocated bytes after every event that changes them."""
    now, series = 0, []
    for event in snapshot["device_traces"][0]:
        now += {"alloc": event["size"], "free_completed": -event["size"]}.get(event["action"], 0)
        series.append(now)
    return series


def reserved(snapshot):
    """Reserved bytes after every event."""
    grows = dict.fromkeys(("segment_alloc", "segment_map"), 1) | dict.fromkeys(("segment_free", "segment_unmap"), -1)
    now, series = 0, []
    for event in snapshot["device_traces"][0]:
        now += grows.get(event["action"], 0) * event["size"]
        series.append(now)
    return series


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
@pytest.mark.parametrize("train", [train_mlp, train_gpt, train_pieces])
def test_its_total_is_the_peak_and_its_end_the_segments(snapshot, monkeypatch, train, allocator):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", allocator)
    trace, found = snapshot(train)
    assert max(allocated(found)) == trace.peak_allocated
    assert max(reserved(found)) == trace.peak_reserved
    assert allocated(found)[-1] == sum(segment["active_size"] for segment in found["segments"])
    assert reserved(found)[-1] == sum(segment["total_size"] for segment in found["segments"])


def test_nothing_else_is_other_than_without(snapshot):
    trace, _ = snapshot(train_gpt)
    assert trace == predict(train_gpt)


def test_pytorchs_viewer_opens_it(snapshot):
    trace, found = snapshot(train_mlp)
    assert f"total_reserved: {trace.peak_reserved / 2**20}MiB" in _memory_viz.segsum(found)
    assert _memory_viz.trace(found).count("cudaMalloc") == len(found["segments"])
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "snapshot.pickle" in plot(found)
    flames = _memory_viz.memory(found, format_flamegraph=str)
    assert "train_mlp;optimizer:0:optimizer state;optimizer:0:aten.zeros_like" in flames


def test_the_viewer_in_the_browser_knows_each_opcode(snapshot, tmp_path):
    snapshot(train_gpt)
    written = {opcode.name for opcode, *_ in pickletools.genops((tmp_path / "run.pickle").read_bytes())}
    assert written <= READ_BY_THE_VIEWER


def test_an_allocation_tells_what_for_and_the_readers_own_lines(snapshot):
    _, found = snapshot(train_mlp)
    events = found["device_traces"][0]
    stacks = [[(line["filename"], line["name"]) for line in event["frames"]] for event in events]
    own = (__file__, "train_mlp")
    assert [("blocks.0.1", "aten.relu"), ("forward", "activation"), own] in stacks
    assert [("blocks.1.0", "aten.mm"), ("backward", "gradient"), own] in stacks
    assert {stack[-1] for stack in stacks} == {own}
    # The viewer in the browser fails where there are categories, and none of them is this one.
    assert "unknown" in {event["category"] for event in events}
    assert {"parameter", "gradient", "optimizer state", "workspace"} < {event["category"] for event in events}


def test_out_of_memory_is_its_last_event(snapshot):
    trace, found = snapshot(train_mlp, budget="24 MiB", width=2048)
    last = found["device_traces"][0][-1]
    assert trace.oom
    assert (last["action"], last["size"]) == ("oom", trace.oom.asked)
    assert max(allocated(found)) == trace.peak_allocated


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(NotWritten, match="has that name already"):
        predict(train_mlp, snapshot=tmp_path)
