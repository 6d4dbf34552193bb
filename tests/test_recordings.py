"""The comparison of predictions with recordings, tried on recordings that were predicted, and on wrong ones."""

import csv
import json

import pytest

from memlab.vgpu.gpu import VirtualGpu
from tests import accuracy
from tests.accuracy import Row, card_of, complaints, families, in_turn, masked, minor, rows, shortfalls
from tests.loops.cases import find_cases
from tests.record.recorder import read, record

CASES = ["one_tensor", "copied pinned"]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A recording of predictions, to try the comparison on."""
    file = tmp_path_factory.mktemp("recording") / "simulated.json"
    record(find_cases(CASES), VirtualGpu("H200"), file, seconds=300, say=print)
    return read(file)


@pytest.fixture
def changed(simulated):
    return json.loads(json.dumps(simulated))


def row(name="a", recorded=(1000, 2000), predicted=(1000, 2000), said="", predicted_said=""):
    return Row(name, "nets", False, recorded, predicted, said, predicted_said, {})


def test_the_comparison_finds_equal_what_is_equal(simulated):
    found = list(rows(simulated))
    assert len(found) == len(find_cases(CASES))
    assert {one.fits for one in found} == {True, False}  # one tensor of all that is free, and more
    assert all(one.equal and one.verdict for one in found)
    assert all(one.error == one.reserved_error == 0 for one in found if one.fits)
    assert {one.family for one in found} == {"walls", "allocator"}
    assert complaints(found, set()) == []


def test_the_comparison_finds_what_differs(changed):
    case = changed["cases"]["copied pinned=True"]
    case["peaks"] = [[allocated * 2, 1] for allocated, _ in case["peaks"]]
    found = next(one for one in rows(changed) if one.name == "copied pinned=True")
    assert found.error == pytest.approx(-0.5)
    assert found.reserved_error > 1
    assert not found.equal
    assert complaints([found], set()) == ["copied pinned=True: -50.0000%, and known.toml does not say why"]
    assert "0 of 1 are reserved within 3%, 100% should be" in shortfalls([found])


def test_a_verdict_that_is_wrong_is_found(changed):
    fits, full = changed["cases"]["one_tensor share=0.97"], changed["cases"]["one_tensor share=1.02"]
    fits |= {"oom": True, "message": "CUDA out of memory."}
    full |= {"oom": False}
    said = complaints(list(rows(changed)), set())
    assert "one_tensor share=0.97: 'CUDA out of memory.', predicted fits" in said
    assert any(one.startswith("one_tensor share=1.02: fits, predicted 'CUDA out of memory. Tried") for one in said)


def test_a_message_that_is_wrong_is_found_but_for_addresses_and_processes():
    assert masked("Process 123 has 2 GiB at 0x7f. Exception") == masked("Process 45 has 2 GiB at 0xab1. Exception")
    assert masked("words\nException raised from malloc at x.cpp") == "words"
    assert complaints([row(said="Process 1 has 2 GiB", predicted_said="Process 2 has 2 GiB")], set()) == []
    assert complaints([row(said="1 GiB", predicted_said="2 GiB")], set()) == ["a: '1 GiB', predicted '2 GiB'"]


def test_the_goal_is_judged_by_shares():
    right = [row(str(number)) for number in range(200)]
    near = row("near", predicted=(1001, 2000))
    far = row("far", predicted=(1004, 2000))
    for misses, said in (
        ([near] * 22, []),
        ([near] * 23, ["200 of 223 are equal to the byte, 90% should be"]),
        ([far] * 2, []),
        ([far] * 3, ["200 of 203 are within 0.1%, 99% should be"]),
        ([row(predicted=(1006, 2000))], ["200 of 201 are within 0.5%, 100% should be"]),
        ([row(predicted=(1000, 2025))] * 10, []),
        ([row(predicted=(1000, 2025))] * 11, ["200 of 211 are reserved within 1%, 95% should be"]),
        ([row(predicted=(1000, 2062))], ["200 of 201 are reserved within 3%, 100% should be"]),
    ):
        assert shortfalls(right + misses) == said


def test_a_miss_is_listed_as_long_as_it_is_one(tmp_path):
    file = tmp_path / "known.toml"
    here = minor(accuracy.torch.__version__)
    file.write_text(f'[[miss]]\ncases = ["a"]\non = ["T4 {here}", "H100 1.0"]\nop = "aten.softmax: why"\n')
    assert accuracy.known_misses("T4", file) == {"a"}
    assert accuracy.known_misses("H100", file) == set()
    assert accuracy.known_misses("T4", tmp_path / "none.toml") == set()
    assert complaints([row(predicted=(1001, 2000)), row("b")], {"a"}) == []
    assert complaints([row()], {"a"}) == ["a is right: take it off known.toml"]
    only_reserved = row(predicted=(1000, 2062))
    assert complaints([only_reserved], {"a"}) == []
    assert complaints([only_reserved], set()) == ["a: reserved +3.1000%, and known.toml does not say why"]


def test_each_case_is_compared_on_one_card_in_turn():
    names = [case.name for case in find_cases([])]
    turns = [in_turn(number, 3) for number in range(3)]
    assert all(sum(turn(name) for turn in turns) == 1 for name in names)
    assert all(sum(map(turn, names)) > len(names) / 5 for turn in turns)


def test_what_cannot_be_compared_is_counted(changed):
    changed["cases"] = {
        "one_tensor share=0.97": {"error": "it failed"},
        "a loop of the past": {"peaks": [[1, 1]], "oom": False},
    }
    left_out = accuracy.Counter()
    assert list(rows(changed, left_out=left_out)) == []
    assert left_out == {"not recorded": 1, "without its library": 1}


def test_only_recordings_of_this_torch_are_compared(simulated, tmp_path):
    for name, version in (("mine", simulated["torch"]), ("other", "1.0.0")):
        (tmp_path / f"{name}.json").write_text(json.dumps(simulated | {"torch": version}))
    (found,) = accuracy.of_this_torch(tmp_path)
    assert found["torch"] == simulated["torch"]


def test_each_family_has_a_row_and_those_of_other_versions_stay(simulated, tmp_path):
    fresh = list(families([(simulated | {"source": "stand-in, not a GPU"}, list(rows(simulated)))]))
    here = minor(simulated["torch"])
    assert [(row["card"], row["torch"], row["loops"]) for row in fresh] == [
        ("H200 (stand-in)", here, family) for family in ("walls", "allocator")
    ]
    assert {row["worst"] for row in fresh} == {"+0.00%"}
    file, page = tmp_path / "accuracy.csv", tmp_path / "page.md"
    old = dict.fromkeys(accuracy.FIELDS, "1") | {"card": "T4", "torch": "1.0", "loops": "nets", "worst": "-2.00%"}
    with file.open("w", newline="") as text:
        writer = csv.DictWriter(text, accuracy.FIELDS)
        writer.writeheader()
        writer.writerows([old, old | {"torch": here}])
    page.write_text("before\n<!-- accuracy -->\nold\n<!-- end of accuracy -->\nafter\n")
    for _ in range(2):  # what was written can be read again
        accuracy.write(fresh, file, page)
    assert list(csv.DictReader(file.read_text().splitlines())) == [*fresh[::-1], old]
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    sums = [line.split(" | ") for line in lines if line.startswith(("| H200", "| T4"))]
    cases = str(sum(int(row["cases"]) for row in fresh))
    assert [line[:3] for line in sums] == [["| H200 (stand-in)", here, cases], ["| T4", "1.0", "1"]]
    assert "-2.00%" in sums[1]


@pytest.mark.parametrize(
    ("device", "memory", "card"),
    [
        ("NVIDIA H200", 150_000_000_000, "H200"),
        ("Tesla T4", 15_828_320_256, "T4"),
        ("NVIDIA A100-SXM4-40GB", 42_298_834_944, "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", 84_987_740_160, "A100-80GB"),
        ("NVIDIA GeForce RTX 4090", 25_262_096_384, "RTX 4090"),
    ],
)
def test_the_card_is_known_by_its_device(device, memory, card):
    assert card_of({"device": device, "total_memory": memory}) == card


def test_an_unknown_device_is_said():
    with pytest.raises(LookupError, match="Tesla K80 is no card that memlab knows"):
        card_of({"device": "Tesla K80"})
