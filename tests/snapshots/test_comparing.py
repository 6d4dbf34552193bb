"""Two snapshots side by side."""

import copy

import pytest

from memlab import cli, compare_snapshots, predict
from memlab.units import MIB
from tests.snapshots.files import DEAD_RUN, event, frames, snapshot, written
from tests.vgpu.test_history import train_mlp


def run(*sizes, lines=None):
    """A snapshot of so many allocations, each at its own line."""
    places = [sum(sizes[:number]) for number in range(len(sizes))]
    stacks = [frames(f"train.py:{line} main") for line in lines or range(1, len(sizes) + 1)]
    trace = [event("alloc", *entry) for entry in zip(places, sizes, stacks, strict=True)]
    blocks = [(place, size, "active_allocated") for place, size in zip(places, sizes, strict=True)]
    return snapshot(trace, sum(sizes), blocks)


def compared(folder, one, other):
    return compare_snapshots(written(folder, one, "a.pickle"), written(folder, other, "b.pickle"))


def test_the_largest_difference_comes_first_and_what_is_equal_is_summed_up(tmp_path):
    said = compared(tmp_path, run(8 * MIB, 4 * MIB, 2 * MIB, 2 * MIB), run(8 * MIB, 5 * MIB, 9 * MIB, 2 * MIB))
    assert list(said.by_line.items())[:2] == [
        ("train.py:3 in main", (2 * MIB, 9 * MIB)),
        ("train.py:2 in main", (4 * MIB, 5 * MIB)),
    ]
    lines = str(said).splitlines()
    assert "peak         16.0 MiB  24.0 MiB  +8.00 MiB" in lines
    assert "             10.0 MiB  10.0 MiB        0 B  2 that are equal in both" in lines
    assert (
        lines[-1] == "The 2nd allocation is the first that differs: 4.00 MiB at train.py:2 in main against 5.00 MiB at "
        "train.py:2 in main."
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (run(8 * MIB, 4 * MIB), "All 2 allocations have the same sizes, in the same order."),
        (
            run(8 * MIB, 4 * MIB, MIB),
            "The first 2 allocations have the same sizes, in the same order; B goes on after them.",
        ),
        (run(7 * MIB, 4 * MIB), ""),  # another program from the beginning
        (run(8 * MIB, 4 * MIB)["segments"], ""),  # no history
    ],
)
def test_the_order_of_allocations(tmp_path, other, said):
    assert compared(tmp_path, run(8 * MIB, 4 * MIB), other).order == said


def test_a_history_that_has_lost_its_beginning_has_no_order(tmp_path):
    late = dict(DEAD_RUN, device_traces=[DEAD_RUN["device_traces"][0][50:]])
    assert compared(tmp_path, DEAD_RUN, late).order == ""


def test_a_prediction_against_itself_with_another_width(tmp_path):
    for name, options in {"a": {}, "b": {}, "c": {"batch_size": 9}}.items():
        predict(train_mlp, gpu="T4", snapshot=tmp_path / f"{name}.pickle", **options)
    same = compare_snapshots(tmp_path / "a.pickle", tmp_path / "b.pickle")
    assert same.order.startswith("All ")
    assert all(before == after for before, after in same.by_line.values())
    other = compare_snapshots(tmp_path / "a.pickle", tmp_path / "c.pickle")
    assert "is the first that differs: " in other.order
    assert "at test_history.py:" in other.order


def test_ranks_that_differ_on_the_command_line(tmp_path, capsys):
    other = copy.deepcopy(DEAD_RUN)
    index = next(at for at, entry in enumerate(other["device_traces"][0]) if at > 40 and entry["action"] == "alloc")
    other["device_traces"][0][index]["size"] += 8 * MIB
    paths = [str(written(tmp_path, one, name)) for one, name in ((DEAD_RUN, "rank0"), (other, "rank1"))]
    assert cli.main(["explain", *paths]) == 0
    out = capsys.readouterr().out
    assert out.startswith("A: rank0\nB: rank1\n")
    assert "allocation is the first that differs: " in out
