"""memlab on a CUDA card that is not there. `make test` skips this: `make test-cuda` gives it the card."""

import gc
import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from torch import nn

from memlab import cluster, measure, predict
from memlab.devices import Cuda, open_device
from memlab.kernels.shared import shared_processes
from memlab.nets import GPT, MLP
from memlab.vgpu import CARDS, find_card
from memlab.vgpu.versions import TORCH
from tests.cluster import whole
from tests.cuda import chosen, plain, streams
from tests.loops.case import Case
from tests.loops.cases import find_cases
from tests.record.card import facts
from tests.record.recorder import allocator_settings, record

pytestmark = pytest.mark.skipif("STANDIN_CARD" not in os.environ, reason="needs the stand-in's card: make test-cuda")


@pytest.fixture
def card():
    """The name, for memlab, of the card that is there."""
    return next(card.name for card in CARDS.values() if card.driver_name == torch.cuda.get_device_name())


@pytest.fixture(autouse=True)
def _starts_empty():
    open_device("cuda").release()
    assert torch.cuda.memory_allocated() == 0
    yield
    torch.cuda.empty_cache()


def layers(device, *, width=512, batch_size=64):
    model = MLP(4, width).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(torch.randn(batch_size, width, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def characters(device, *, batch_size=4, checkpoint_every=0, precision="fp32"):
    model = GPT(depth=4, width=128, heads=4, context=128, checkpoint_every=checkpoint_every).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        tokens = torch.randint(256, (batch_size, 128), device=device)
        with torch.autocast("cuda", torch.float16, enabled=precision == "fp16"):
            loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def rows_and_columns(device):
    weight = torch.nn.Parameter(torch.ones(400, 50, device=device))
    while True:
        changed = weight.detach().clone()
        changed[:, list(range(30))] = torch.tensor(1.0)
        loss = weight[[0, 1, 2], [3, 4, 5]].sum() + weight[:, [-1, 0]].sum() + (weight[range(300)] * changed[0]).sum()
        loss.backward()
        yield loss


def speech(device, *, lengths_on="cpu", targets_on="cpu"):
    model = nn.Linear(64, 29).to(device)
    lengths = [torch.full((8,), 100).to(lengths_on), torch.arange(10, 18).to(lengths_on)]
    while True:
        targets = torch.randint(1, 29, (8, 20)).to(targets_on)
        loss = nn.functional.ctc_loss(model(torch.randn(100, 8, 64, device=device)).log_softmax(-1), targets, *lengths)
        loss.backward()
        model.zero_grad()
        yield loss


@pytest.mark.parametrize(
    ("loop", "settings"),
    [
        (layers, {}),
        (rows_and_columns, {}),
        (speech, {}),
        (speech, {"targets_on": "cuda"}),
        (speech, {"targets_on": "cuda", "lengths_on": "cuda"}),
        (characters, {}),
        (characters, {"checkpoint_every": 1}),
        (characters, {"precision": "fp16"}),
    ],
)
def test_what_is_predicted_beside_a_card_is_what_is_measured_on_it(loop, settings, card):
    predicted = predict(loop, gpu=card, **settings)
    assert torch.cuda.memory_allocated() == 0  # nothing was made on the card that is there
    measured = measure(loop, device="cuda", **settings)
    assert (predicted.source, measured.source) == ("predicted", "measured")
    assert predicted.peak_allocated == pytest.approx(measured.peak_allocated, rel=0.005)
    assert predicted.peak_reserved == pytest.approx(measured.peak_reserved, rel=0.03)
    assert sum(measured.by_category.values()) == measured.peak_allocated
    gc.collect()
    assert torch.cuda.memory_allocated() == 0


def test_backward_works_on_the_card_after_a_prediction(card):
    predict(layers, gpu=card)
    weight = nn.Parameter(torch.ones(100, 100, device="cuda"))
    (weight @ weight).sum().backward()
    assert weight.grad.shape == (100, 100)


def test_the_card_is_what_its_figures_say(card):
    told = facts(torch.device("cuda"))
    assert told["total_memory"] == find_card(card).capacity
    assert told["capability"] == list(divmod(find_card(card).sm, 10))
    assert told["processors"] == find_card(card).processors
    free, total = torch.cuda.mem_get_info()
    assert (free, total) == (find_card(card).room, find_card(card).capacity)


def greedy(device):
    kept = []
    while True:
        kept.append(torch.empty(2**30, dtype=torch.uint8, device=device))
        if len(kept) % 100 == 0:
            yield None


@pytest.mark.parametrize("budget", [None, "5 GiB"])
def test_out_of_memory_is_a_result_and_the_next_run_starts_on_an_empty_card(budget):
    failed = measure(greedy, device="cuda", budget=budget)
    assert failed.oom is not None
    assert failed.oom.asked == 2**30
    if budget:
        assert failed.oom.limit == 5 * 2**30
    assert torch.cuda.memory_allocated() == 0
    assert measure(layers, device="cuda").oom is None


def test_a_run_after_an_error_frees_what_its_frames_hold_and_says_what_a_name_holds(monkeypatch):
    empty = measure(layers, device="cuda")

    def fails():
        model = MLP(4, 4096).to("cuda")
        assert model is None

    try:
        fails()
    except AssertionError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    assert torch.cuda.memory_allocated() > 2**28
    after = measure(layers, device="cuda")
    assert (after.peak_allocated, after.notes) == (empty.peak_allocated, ())
    monkeypatch.setattr(sys.modules["__main__"], "kept", torch.empty(2**31, device="cuda"), raising=False)
    (note,) = measure(layers, device="cuda").notes
    assert f"8.00 GiB of {torch.cuda.get_device_name()} were held before the run, by kept (8.00 GiB)" in note


def test_expandable_segments_are_switched_on_and_off():
    device = Cuda(torch.device("cuda"))

    def expandable():
        tensor = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        kinds = {segment["is_expandable"] for segment in torch.cuda.memory_snapshot()}
        del tensor
        return kinds

    with allocator_settings("expandable_segments:True", device):
        assert expandable() == {True}
    assert expandable() == {False}


def test_without_a_card_the_cuda_build_predicts_and_measures_on_the_host():
    code = (
        "import torch; from memlab import measure, predict; from tests.cuda.test_card import layers\n"
        "assert not torch.cuda.is_available()\n"
        "assert predict(layers, gpu='T4').peak_allocated > 0\n"
        "assert measure(layers).device.startswith('CPU')"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("STANDIN_", "LD_PRELOAD"))}
    subprocess.run([sys.executable, "-m", "tests.standin", "T4:0", "-c", code], check=True, env=environment)


def test_a_recording_leaves_out_what_the_cases_before_have_left(tmp_path):
    left = []

    def leaving(device):
        left.append(torch.empty(30 * 2**20, dtype=torch.uint8, device=device))
        while True:
            yield None

    cases = [Case(layers, {"width": 256}), Case(leaving), Case(layers, {"width": 256, "batch_size": 64})]
    recording = record(cases, Cuda(torch.device("cuda")), tmp_path / "some.json", seconds=300, say=print)
    before, _, after = (case["peaks"][-1] for case in recording["cases"].values())
    assert after == before
    left.clear()


def test_a_backward_pass_that_is_differentiated_is_recorded_as_in_a_process_of_its_own(card, tmp_path):
    cases = find_cases(["penalty", "inner_steps"])
    recording = record(cases, Cuda(torch.device("cuda")), tmp_path / "some.json", seconds=300, say=print)
    for case in cases:
        recorded = [allocated for allocated, _ in recording["cases"][case.name]["peaks"]]
        predicted = predict(case.made()[0], gpu=card, steps=len(recorded), **case.settings)
        assert [step.peak_allocated for step in predicted.steps] == recorded


@pytest.mark.parametrize("loop", [*streams.LOOPS, *chosen.LOOPS], ids=lambda loop: loop.__name__)
def test_a_loop_takes_in_a_process_of_its_own_what_is_predicted(loop, card):
    command = [sys.executable, "-m", "tests.cuda.plain", loop.__module__, loop.__name__]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    peaks, reserved = json.loads(run.stdout)
    trace = predict(loop, gpu=card, steps=plain.STEPS)
    assert [step.peak_allocated for step in trace.steps] == peaks
    assert trace.peak_reserved == reserved


@pytest.mark.skipif(TORCH < (2, 13), reason="before, all graphs share one")
def test_each_cuda_graph_has_a_random_state_of_its_own():
    x, graphs, taken = torch.zeros(8, device="cuda"), [], []
    for _ in range(3):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            x.add_(1)
        taken.append(torch.cuda.memory_allocated())
    assert [after - before for before, after in pairwise(taken)] == [1024, 1024]


def test_two_ranks_train_on_the_host_beside_one_card():
    ranks = cluster.measure(whole.train, world_size=2, device="cpu", steps=2)
    assert [len(rank.losses) for rank in ranks] == [2, 2]


def test_a_process_that_would_be_forked_has_the_card(tmp_path):
    (tmp_path / "asking.py").write_text("import torch; print(torch.ones(2, device='cuda').device)")
    command = [sys.executable, "-m", "memlab.forked", "asking"]
    with shared_processes():
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "cuda:0\n"
