"""The source of cuDNN's answers, and what is remembered."""

from dataclasses import replace

import pytest

from memlab.vgpu.cudnn import shipped
from memlab.vgpu.cudnn.answers import Answers
from memlab.vgpu.cudnn.convolution import FILTER, FORWARD, Convolution
from memlab.vgpu.cudnn.disk_cache import Remembered

KNOWN = Convolution(FORWARD, (8, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), "float32")
UNKNOWN = replace(KNOWN, way=FILTER)


class Asked:
    """A client that counts."""

    def __init__(self, answer):
        self.answer, self.count = answer, 0

    def ask(self, capability, question):
        self.count += 1
        return self.answer


@pytest.fixture(autouse=True)
def _shipped(tmp_path, monkeypatch):
    """The file has one question, answered by cuDNN 9.20."""
    monkeypatch.setattr(shipped, "FILE", tmp_path / "answers.json.gz")
    shipped._file.cache_clear()
    kept = {
        (capability, replace(KNOWN, x=(batch, 3, 8, 8), dtype=dtype)): (1000 * batch + capability, 0)
        for batch in (1, 8)
        for dtype in ("float32", "bfloat16")
        for capability in (75, 80)
    }
    shipped.write(92000, {**kept, (75, UNKNOWN): None})
    yield
    shipped._file.cache_clear()


def test_the_file_answers_for_its_batches_dtypes_and_cards():
    assert shipped.version() == 92000
    assert shipped.find(75, KNOWN) == (8075, 0)
    assert shipped.find(80, replace(KNOWN, x=(1, 3, 8, 8), dtype="bfloat16")) == (1080, 0)
    for other in (
        UNKNOWN,
        replace(KNOWN, x=(2, 3, 8, 8)),
        replace(KNOWN, dtype="float16"),
        replace(KNOWN, tf32=False),
        replace(KNOWN, deterministic=True),
        replace(KNOWN, channels_last=True),
        replace(KNOWN, alignment=(16, 32, 32)),
    ):
        assert shipped.find(80, other) is None
    assert shipped.find(90, KNOWN) is None


def test_what_ships_is_taken_first_where_it_is_of_the_wanted_version():
    client = Asked((5,))
    found = Answers(92000, 92000, client)
    assert found.find(80, KNOWN) == ((8080, 0), 92000)
    assert found.find(80, UNKNOWN) == ((5,), 92000)
    assert found.find(80, UNKNOWN) == ((5,), 92000)
    assert client.count == 1


def test_the_installed_cudnn_goes_before_what_ships_from_another():
    assert Answers(92600, 92600, Asked((5,))).find(80, KNOWN) == ((5,), 92600)
    assert Answers(92600, 92600, Asked(None)).find(80, KNOWN) == ((8080, 0), 92000)


def test_without_a_cudnn_only_what_ships_is_known():
    found = Answers(92600, 0, None)
    assert found.find(80, KNOWN) == ((8080, 0), 92000)
    assert found.find(80, UNKNOWN) == (None, 0)


def test_answers_are_remembered_for_the_next_process(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = Asked((5, 0)), Asked((6, 0))
    assert Answers(92000, 92000, first, Remembered(92000)).find(80, UNKNOWN) == ((5, 0), 92000)
    assert Answers(92000, 92000, second, Remembered(92000)).find(80, UNKNOWN) == ((5, 0), 92000)
    assert Answers(92000, 92600, second, Remembered(92600)).find(80, UNKNOWN) == ((6, 0), 92600)


def test_a_line_that_a_crash_left_half_written_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Remembered(92000).add(80, UNKNOWN, (5, 0))
    file = tmp_path / "memlab" / "cudnn-92000.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert Remembered(92000).find(80, UNKNOWN) is None
    Remembered(92000).add(80, UNKNOWN, (5, 0))
    assert Remembered(92000).find(80, UNKNOWN) == (5, 0)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    Remembered(92000).add(80, UNKNOWN, (5, 0))
    assert Remembered(92000).find(80, UNKNOWN) is None
