"""Files that are snapshots, were snapshots, or never were."""

import os
import pickle
import random

import pytest
import torch

from memlab import cli, explain_snapshot
from memlab.errors import BadValue
from tests.snapshots.files import DEAD_RUN, written


class _Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_in_a_pickle_is_named_and_not_run(tmp_path):
    path = written(tmp_path, {"segments": [], "device_traces": [_Code(tmp_path / "made")]})
    with pytest.raises(BadValue, match=r"'.*snapshot.pickle' asks for (posix|nt).mkdir, which a snapshot never does"):
        explain_snapshot(path)
    assert not (tmp_path / "made").exists()


def test_a_tensor_is_no_plain_value(tmp_path):
    with pytest.raises(BadValue, match=r"asks for torch\._utils\._rebuild_tensor_v2"):
        explain_snapshot(written(tmp_path, [torch.zeros(2)]))
    torch.save(DEAD_RUN["segments"], tmp_path / "saved.pickle")
    with pytest.raises(BadValue, match=r"was written by torch\.save, and is no plain pickle"):
        explain_snapshot(tmp_path / "saved.pickle")


@pytest.mark.parametrize("part", [0.001, 0.3, 0.999])
def test_a_file_that_is_cut_short(tmp_path, part):
    whole = pickle.dumps(DEAD_RUN, protocol=4)
    (tmp_path / "cut.pickle").write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(BadValue, match=r"cut.pickle' is cut short or damaged: copy it again"):
        explain_snapshot(tmp_path / "cut.pickle")


@pytest.mark.parametrize("content", [None, 3, {"a": 1}, [1, 2], {"segments": 5}, {"segments": [{"address": 1}]}])
def test_a_pickle_of_something_else(tmp_path, content):
    with pytest.raises(BadValue, match="is a pickle, but of no snapshot of PyTorch's allocator"):
        explain_snapshot(written(tmp_path, content))


@pytest.mark.parametrize("content", [[], {"segments": [], "device_traces": [[]]}])
def test_a_snapshot_of_nothing(tmp_path, content):
    with pytest.raises(BadValue, match="is a snapshot of no memory"):
        explain_snapshot(written(tmp_path, content))


def test_what_is_there_without_a_history(tmp_path):
    segments = DEAD_RUN["segments"]
    forms = (segments, {"segments": segments}, {"segments": segments, "device_traces": [[]]})
    said = [explain_snapshot(written(tmp_path, form)) for form in forms]
    assert {one.allocated for one in said} == {sum(segment["allocated_size"] for segment in segments)}
    assert {one.reserved for one in said} == {sum(segment["total_size"] for segment in segments)}
    assert all("_record_memory_history() before the model is made" in str(one) for one in said)


def test_the_layout_of_pytorch_2_0(tmp_path):
    """Blocks had no address, and the frames of what was in them under ``history``."""
    segments = []
    for segment in DEAD_RUN["segments"]:
        blocks = [
            {"size": block["size"], "state": block["state"], "history": [{"frames": block["frames"], "addr": 0}]}
            for block in segment["blocks"]
        ]
        segments.append({key: segment[key] for key in ("address", "total_size", "stream", "segment_type")})
        segments[-1]["blocks"] = blocks
    new = explain_snapshot(written(tmp_path, DEAD_RUN["segments"]))
    assert explain_snapshot(written(tmp_path, segments)).by_line == new.by_line


def test_the_gpu_that_holds_the_most_is_chosen(tmp_path):
    other = DEAD_RUN["segments"] + [dict(segment, device=1) for segment in DEAD_RUN["segments"][:2]]
    two = dict(DEAD_RUN, segments=other, device_traces=[DEAD_RUN["device_traces"][0], []])
    said = explain_snapshot(written(tmp_path, two))
    assert said.by_line == explain_snapshot(written(tmp_path, DEAD_RUN)).by_line
    assert "GPU 0; 1 more in the file hold less" in str(said)


def test_any_damage_ends_in_a_sentence(tmp_path):
    whole, draw = pickle.dumps(DEAD_RUN, protocol=4), random.Random(7)
    said = []
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        (tmp_path / "damaged.pickle").write_bytes(damaged)
        try:
            str(explain_snapshot(tmp_path / "damaged.pickle"))
        except BadValue as error:
            said.append(str(error))
    assert len(said) > 30
    assert all(sentence.count(": ") == 1 and sentence.endswith(".") for sentence in said)


def test_on_the_command_line(tmp_path, capsys, monkeypatch):
    path = written(tmp_path, DEAD_RUN, "no name that tells")
    assert cli.main(["explain", str(path)]) == 0
    assert capsys.readouterr().out == f"{explain_snapshot(path)}\n"
    with path.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert cli.main(["explain"]) == 2
    assert "What comes in by stdin is a snapshot, not a log: give its file" in capsys.readouterr().err
    (tmp_path / "train.log").write_text("fine")
    assert cli.main(["explain", str(path), str(tmp_path / "train.log")]) == 2
    assert "train.log' is neither a snapshot nor a log with an error in it" in capsys.readouterr().err
