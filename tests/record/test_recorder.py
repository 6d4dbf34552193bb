"""The recorder, on the CPU and on a virtual GPU: what it keeps, and that nothing is lost."""

import json
import os

import pytest
import torch

from memlab.devices import Cpu
from memlab.vgpu.gpu import VirtualGpu
from tests.loops.case import Case
from tests.loops.cases import find_cases
from tests.record.recorder import NotARecording, read, record, recordings_in


def small(device, *, width=16, broken=False, greedy=False):
    weight = torch.nn.Parameter(torch.ones(width, width, device=device))
    while True:
        if broken:
            raise ZeroDivisionError("on purpose")
        kept = [torch.empty(2**28, device=device) for _ in range(20 if greedy else 0)]
        loss = (torch.ones(4, width, device=device) @ weight).sum()
        loss.backward()
        weight.grad = None
        del kept
        yield loss


CASES = [Case(small, {"width": 16}), Case(small, {"width": 64}), Case(small, {"broken": True})]


def silent(line):
    pass


def test_a_recording_on_the_cpu(tmp_path):
    said = []
    recording = record(CASES, Cpu(), tmp_path / "cpu.json", seconds=60, say=said.append)
    assert recording == read(tmp_path / "cpu.json")
    assert recording["source"] == "measured"
    assert recording["torch"] == torch.__version__
    case = recording["cases"]["small width=64"]
    assert case["settings"] == {"width": 64}
    assert case["loop"] == "small"
    assert case["seconds"] > 0
    assert case["measured_seconds"] > 0
    assert case["by_category"]["parameter"] == 4 * 64 * 64
    assert sum(case["by_category"].values()) == case["xray_peak"]
    assert len(said) == 3


def test_a_recording_of_predictions(tmp_path):
    recording = record(CASES[:2], VirtualGpu("T4"), tmp_path / "t4.json", seconds=60, say=silent)
    assert recording["source"] == "predicted"
    for case in recording["cases"].values():
        assert [len(peaks) for peaks in case["peaks"]] == [2, 2, 2]
        assert case["peaks"][-1][0] == case["xray_peak"]  # each run starts cold
        assert case["residual"] == case["by_category"]["workspace"] > 0


def test_a_case_that_fails_is_kept_with_its_error_and_the_others_go_on(tmp_path):
    cases = [CASES[2], CASES[0]]
    recording = record(cases, Cpu(), tmp_path / "cpu.json", seconds=60, say=silent)
    broken, whole = recording["cases"].values()
    assert broken["error"].startswith("ZeroDivisionError at test_recorder.py:")
    assert broken["error"].endswith("on purpose")
    assert "error" not in whole


def test_out_of_memory_is_kept_as_such(tmp_path):
    recording = record([Case(small, {"greedy": True})], VirtualGpu("T4"), tmp_path / "t4.json", seconds=60, say=silent)
    case = recording["cases"]["small greedy=True"]
    assert case["oom"] is True
    assert case["message"].startswith("CUDA out of memory. Tried to allocate 1024.00 MiB.")
    fits = record(CASES[:1], VirtualGpu("T4"), tmp_path / "fits.json", seconds=60, say=silent)
    assert "message" not in fits["cases"]["small width=16"]


def test_allocator_settings_reach_the_run_and_are_taken_back(tmp_path):
    cases = [Case(small, {"width": 2000}), Case(small, {"width": 2000}, allocator="expandable_segments:True")]
    recording = record(cases, VirtualGpu("T4"), tmp_path / "t4.json", seconds=60, say=silent)
    ordinary, expandable = recording["cases"].values()
    assert expandable["allocator"] == "expandable_segments:True"
    assert expandable["peaks"][-1][0] < ordinary["peaks"][-1][0]
    assert "PYTORCH_ALLOC_CONF" not in os.environ
    assert find_cases(["expandable_segments"])


def test_it_goes_on_where_it_stopped(tmp_path):
    file = tmp_path / "cpu.json"
    record(CASES[:1], Cpu(), file, seconds=60, say=silent)
    first = read(file)["cases"]["small width=16"]
    said = []
    recording = record(CASES, Cpu(), file, seconds=60, say=said.append)
    assert recording["cases"]["small width=16"] == first  # not run again
    assert list(recording["cases"]) == [case.name for case in CASES]
    assert len(said) == 2


def test_no_case_is_begun_that_would_not_end_in_time(tmp_path):
    said = []
    recording = record(CASES, Cpu(), tmp_path / "cpu.json", seconds=1e-6, say=said.append)
    assert recording["cases"] == {}
    assert said == ["out of time before small width=16: run the same again to go on"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"memlab_recording": 99, "device": "CPU"}'])
def test_another_file_is_refused_and_left_alone(tmp_path, text):
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(NotARecording, match="recording"):
        record(CASES, Cpu(), file, seconds=60, say=silent)
    assert file.read_text() == text


def test_a_recording_of_another_device_is_refused(tmp_path):
    file = tmp_path / "t4.json"
    record(CASES[:1], VirtualGpu("T4"), file, seconds=60, say=silent)
    with pytest.raises(NotARecording, match="a recording of T4, this device is L4: give another file"):
        record(CASES, VirtualGpu("L4"), file, seconds=60, say=silent)


def test_the_file_has_a_case_a_line(tmp_path):
    file = tmp_path / "cpu.json"
    record(CASES[:2], Cpu(), file, seconds=60, say=silent)
    assert json.loads(file.read_text()) == read(file)
    assert sum(line.startswith('  "small width=') for line in file.read_text().splitlines()) == 2


def test_a_recording_can_be_compressed_and_gone_on_with(tmp_path):
    plain, packed = tmp_path / "t4.json", tmp_path / "t4.json.gz"
    record(CASES[:1], VirtualGpu("T4"), packed, seconds=60, say=silent)
    for file in (plain, packed):
        record(CASES[:2], VirtualGpu("T4"), file, seconds=60, say=silent)
    assert read(packed) == read(plain)
    assert packed.stat().st_size < 0.7 * plain.stat().st_size
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(NotARecording, match="is not a recording"):
        read(packed)


def test_the_recordings_of_a_folder_are_found_without_the_events_beside_them(tmp_path):
    for name in ("b.json.gz", "a.json", "a_gpt.events.json.gz", "notes.txt"):
        (tmp_path / name).touch()
    assert [file.name for file in recordings_in(tmp_path)] == ["a.json", "b.json.gz"]


class BytesOnly(Cpu):
    """A device that computes nothing."""

    source = "stand-in, not a GPU"
    computes = False


def test_where_nothing_is_computed_there_are_fewer_steps_and_no_seconds(tmp_path):
    recording = record(CASES[:1], BytesOnly(), tmp_path / "cpu.json", seconds=60, say=silent)
    assert recording["source"] == "stand-in, not a GPU"
    (case,) = recording["cases"].values()
    assert len(case["peaks"]) == 3
    assert "seconds" not in case
    assert case["xray_seconds"] is None
