"""The explanations of snapshots, held to what PyTorch itself counted and to what predictions know."""

import pytest
from IPython.core.interactiveshell import InteractiveShell

from memlab import explain, explain_snapshot, predict
from memlab.display import snapshot_html
from memlab.units import GIB, MIB, format_bytes
from tests.snapshots.files import DEAD_RUN, DEAD_RUN_SAID, event, frames, freed, snapshot, written
from tests.vgpu.test_history import train_mlp


@pytest.fixture(name="dead")
def dead_run(tmp_path):
    return explain_snapshot(written(tmp_path, DEAD_RUN))


def test_the_end_is_what_pytorch_counts(dead):
    assert dead.allocated == sum(segment["allocated_size"] for segment in DEAD_RUN["segments"])
    assert dead.replay.reserved[-1] == sum(segment["total_size"] for segment in DEAD_RUN["segments"])
    assert dead.replay.is_whole
    assert len(dead.replay.steps) == 5


def test_why_it_failed_agrees_with_the_message(dead):
    said = explain(DEAD_RUN_SAID)
    assert dead.failed.reason == said.reason == "full"
    pairs = ((dead.failed.asked, said.asked), (dead.failed.free, said.free), (dead.failed.allocated, said.allocated))
    for ours, theirs in (*pairs, (dead.failed.unallocated, said.unallocated)):
        assert ours == pytest.approx(theirs, abs=0.005 * GIB)


def test_lines_and_categories_of_the_dead_run(dead):
    hidden, logits = 60000 * 4096 * 4, 64 * 50000 * 4
    weights = 4 * (1024 * 4096 + 4096 + 4096 * 50000 + 50000)
    assert sum(dead.by_line.values()) == sum(dead.by_category.values()) == dead.replay.curve[dead.moment]
    assert dead.by_category["optimizer state"] == pytest.approx(2 * weights, rel=0.01)
    assert dead.by_category["parameter"] == pytest.approx(weights, rel=0.01)
    assert dead.by_line["dead_run.py:17"] == pytest.approx(hidden + 5 * MIB, rel=0.01)
    assert dead.growth == {"dead_run.py:17": 64 * 4096 * 4}
    assert not any(logits == size for size in dead.by_line.values())  # what was freed is not there


def test_the_table_of_a_dead_run_fits_on_a_screen_and_names_the_cure(dead):
    lines = str(dead).splitlines()
    assert len(lines) <= 40
    assert "It was asked for at dead_run.py:18." in lines
    assert any(
        line.startswith("1. 11.2 GiB of the request itself, at dead_run.py:18: smaller batches") for line in lines
    )
    assert any(line.startswith("2. 2.06 GiB of activations") and "notebook 06" in line for line in lines)
    assert any(line.startswith("3. 1.56 GiB of optimizer state") and "notebook 10" in line for line in lines)
    assert lines[lines.index("  1.00 MiB  dead_run.py:17") - 1].startswith("What each step leaves behind")


def test_a_prediction_is_told_as_its_trace_tells_it(tmp_path):
    trace = predict(train_mlp, gpu="T4", snapshot=tmp_path / "run.pickle")
    said = explain_snapshot(tmp_path / "run.pickle")
    assert said.peak_allocated == trace.peak_allocated
    told = {str(name): count for name, count in trace.by_category.items() if count}
    assert said.by_category == pytest.approx(told, abs=2048)  # a trace counts tensors, and what they are rounded up by
    assert "(as the snapshot says)" in str(said)


def test_a_ring_buffer_that_has_lost_its_beginning(tmp_path, dead):
    lost = 200
    late = dict(DEAD_RUN, device_traces=[DEAD_RUN["device_traces"][0][lost:]])
    said = explain_snapshot(written(tmp_path, late))
    assert said.replay.curve == pytest.approx(dead.replay.curve[lost:], abs=2 * MIB)  # by what was not split off
    assert said.replay.reserved == dead.replay.reserved[lost:]
    assert not said.replay.is_whole
    assert "The history begins with" in str(said)


def test_segments_at_a_moment_are_those_that_were_there(dead):
    for moment in range(0, len(dead.replay.curve), 37):
        segments = dead.replay.segments(moment)
        assert sum(segment["total_size"] for segment in segments) == dead.replay.reserved[moment]
        blocks = [block for segment in segments for block in segment["blocks"]]
        used = sum(block["size"] for block in blocks if block["state"] != "inactive")
        assert used == dead.replay.curve[moment]
        assert all(sum(block["size"] for block in one["blocks"]) == one["total_size"] for one in segments)


def test_expandable_segments_grow_and_shrink(tmp_path):
    page = 20 * MIB
    trace = [event("segment_map", 0, page), event("alloc", 0, page, frames("train.py:3 main"))]
    trace += [event("segment_map", page, page), event("alloc", page, page, frames("train.py:4 main"))]
    trace += [*freed(page, page), event("segment_unmap", page, page)]
    said = explain_snapshot(written(tmp_path, snapshot(trace, page, [(0, page, "active_allocated")])))
    assert said.replay.reserved == [0, page, page, 2 * page, 2 * page, 2 * page, 2 * page, page]
    assert said.peak_allocated == 2 * page
    assert sum(segment["total_size"] for segment in said.segments) == 2 * page


def failing(tmp_path, asked, free, gaps):
    """A snapshot in which a request fails, with 1 GiB allocated and ``gaps`` bytes between."""
    blocks = [(0, GIB, "active_allocated"), (GIB, gaps, "inactive")]
    oom = {"action": "oom", "device_free": free, "size": asked, "stream": 0}
    trace = [event("segment_alloc", 0, GIB + gaps), event("alloc", 0, GIB, frames("train.py:3 main")), oom]
    return explain_snapshot(written(tmp_path, snapshot(trace, GIB + gaps, blocks)))


@pytest.mark.parametrize(
    ("asked", "free", "gaps", "reason"),
    [
        (200 * MIB, 50 * MIB, 180 * MIB, "fragmentation"),
        (200 * MIB, 50 * MIB, 100 * MIB, "full"),
        (30 * MIB, 10 * MIB, 40 * MIB, "full"),  # crumbs
        (200 * MIB, 300 * MIB, 2 * MIB, "limit"),
    ],
)
def test_the_reason_of_a_failure(tmp_path, asked, free, gaps, reason):
    said = failing(tmp_path, asked, free, gaps)
    assert said.failed.reason == reason
    assert ("expandable_segments" in "\n".join(said.failed.steps)) == (reason == "fragmentation")
    assert (said.failed.steps[0] in str(said)) == (reason != "full")  # of full ones it names what could go
    assert "The last allocation before it was at train.py:3 in main." in str(said)


def test_a_request_that_failed_and_did_no_harm(tmp_path):
    """cuDNN asks for workspaces, and takes another algorithm where it gets none."""
    torch = "/env/lib/python3.12/site-packages/torch"
    step = frames(f"{torch}/optim/adam.py:9 step", "train.py:5 <module>")
    oom = {"action": "oom", "device_free": 0, "size": GIB, "stream": 0}
    trace = [event("alloc", 0, 512, frames("train.py:3 <module>")), oom, event("alloc", 512, 512, step)]
    blocks = [(0, 512, "active_allocated"), (512, 512, "active_allocated")]
    died = explain_snapshot(written(tmp_path, snapshot(trace, 2 * MIB, blocks)))
    trace.insert(2, event("alloc", 1024, 512, frames(f"{torch}/autograd/function.py:9 apply")))
    trace[3:3] = freed(1024, 512)
    went_on = explain_snapshot(written(tmp_path, snapshot(trace, 2 * MIB, blocks)))
    assert died.failed.asked == GIB
    assert went_on.failed is None
    assert "when the request failed" not in str(went_on)


def test_a_free_that_is_missing_from_the_history(tmp_path):
    trace = [event("alloc", 0, 512, frames(f"train.py:{line} main")) for line in (3, 4)]
    said = explain_snapshot(written(tmp_path, snapshot(trace, 2 * MIB, [(0, 512, "active_allocated")])))
    assert said.replay.curve == [0, 512, 512]
    assert said.by_line == {"train.py:3 in main": 512}


def test_who_has_expandable_segments_is_not_told_to_get_them(tmp_path):
    content = snapshot([], GIB, [(0, GIB // 2, "active_allocated"), (GIB // 2, GIB // 2, "inactive")])
    assert "expandable_segments" in str(explain_snapshot(written(tmp_path, content)))
    content["segments"][0]["is_expandable"] = True
    assert "expandable_segments" not in str(explain_snapshot(written(tmp_path, content)))


def test_frames_tell_whose_line_and_which_part_of_a_step(tmp_path):
    torch_line = "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py:134 forward"
    engine = [{"filename": "??", "line": 0, "name": "torch::autograd::generated::MmBackward0::apply(std::vector<int>)"}]
    engine += [{"filename": "/x/libtorch_cpu.so.2", "line": 81, "name": "torch::autograd::Engine::thread_main(int)"}]
    stacks = {
        "model.py:8 in forward": frames(torch_line, "/home/a/model.py:8 forward", "/home/a/train.py:3 <module>"),
        "train.py:3 via transformers/modeling_gpt2.py:50 in forward": frames(
            torch_line, "/env/lib/python3.12/site-packages/transformers/modeling_gpt2.py:50 forward",
            "C:\\me\\train.py:3 <module>",
        ),
        "cell 123:4": frames("/tmp/ipykernel_9/123.py:4 <module>", "/usr/lib/python3.12/runpy.py:8 run"),
        "backward pass MmBackward0": engine,
        "backward pass": [],
    }  # fmt: skip
    trace = [event("alloc", number * 512, 512, stack) for number, stack in enumerate(stacks.values())]
    blocks = [(number * 512, 512, "active_allocated") for number in range(len(stacks))]
    said = explain_snapshot(written(tmp_path, snapshot(trace, 2 * MIB, blocks, "small")))
    assert said.by_line == dict.fromkeys(stacks, 512)


def test_metadata_is_taken_for_the_category(tmp_path):
    trace = [event("alloc", 0, 512, frames("train.py:3 main")) | {"user_metadata": "the cache"}]
    said = explain_snapshot(written(tmp_path, snapshot(trace, 2 * MIB, [(0, 512, "active_allocated")])))
    assert said.by_category == {"the cache": 512}


def test_what_a_failed_request_asked_for_is_known(dead, tmp_path):
    assert f"PyTorch asked for {format_bytes(dead.asked)}." in str(dead)
    assert explain_snapshot(written(tmp_path, snapshot([event("alloc", 0, 512)], 2 * MIB, [], "small"))).asked == 0


def test_a_notebook_shows_pictures_and_the_table(dead, tmp_path):
    html = snapshot_html(dead)
    assert html.count("data:image/png;base64,") == 2
    assert 'alt="4.42 GiB when the request failed in snapshot.pickle, 47% activations"' in html
    assert "It was asked for at dead_run.py:18." in html
    assert snapshot_html(explain_snapshot(written(tmp_path, DEAD_RUN["segments"]))).count("<img") == 1
    shell = InteractiveShell.instance()
    try:
        from memlab.display import register

        register()
        assert "<img" in shell.display_formatter.format(dead)[0]["text/html"]
    finally:
        InteractiveShell.clear_instance()
