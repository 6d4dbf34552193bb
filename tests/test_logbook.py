import json
import multiprocessing
import os

import pytest

from memlab import logbook
from memlab.errors import NotRead, NotWritten
from memlab.logbook import append, logbook_file, read
from memlab.trace import Category, Event, Phase, Step, Trace

TRACE = Trace(
    "measured", "a device", "2.13.0", {"batch_size": 8}, (Step(3.5, 0.1, 512, True), Step(2.5, 0.1, 512, True)),
    None, 0, {Category.PARAMETER: 512}, (Event(512, Category.ACTIVATION, Phase.FORWARD, "", "mm"),), 1000,
)  # fmt: skip


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "new" / "logbook.jsonl"))
    return logbook_file()


def test_what_is_appended_is_read_back():
    assert read() == ([], 0)
    append("a panel", TRACE)
    append("another", TRACE)
    (first, second), left_out = read()
    assert left_out == 0
    assert (first.title, second.title) == ("a panel", "another")
    assert first.settings == {"batch_size": 8}
    assert first.peak_allocated == 1024
    assert first.loss == 2.5
    assert first.out_of_memory is False


def test_a_line_that_a_crash_cut_off_costs_that_line_alone(file):
    append("whole", TRACE)
    with file.open("ab") as text:
        text.write(b'{"time": "2026-01-01T00:00:00", "title": "cut o')
    append("after", TRACE)
    with file.open("ab") as text:
        text.write(b'[1, 2]\n{"title": "of another program"}\n\xff\xfe\n')
    entries, left_out = read()
    assert [entry.title for entry in entries] == ["whole", "after"]
    assert left_out == 4


@pytest.mark.parametrize(
    "change",
    [
        {"settings": None}, {"peak_allocated": "1 GiB"}, {"loss": "low"}, {"title": 3}, {"out_of_memory": 2},
        {"flops": 1.5},
    ],
    ids=str,
)  # fmt: skip
def test_a_line_with_a_value_of_another_kind_is_left_out(file, change):
    append("whole", TRACE)
    odd = json.loads(file.read_text()) | change
    file.write_text(json.dumps(odd) + "\n" + "[" * 100_000)
    assert read() == ([], 2)


def test_a_disk_that_takes_half_a_line_is_told(file, monkeypatch):
    monkeypatch.setattr(logbook.os, "write", lambda descriptor, line: len(line) // 2)
    with pytest.raises(NotWritten, match="No space left"):
        append("a panel", TRACE)


def test_a_folder_in_its_place_is_told(file):
    file.mkdir(parents=True)
    with pytest.raises(NotRead, match="cannot be read"):
        read()


def test_without_a_home_it_is_told(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MEMLAB_LOGBOOK")
    monkeypatch.setattr(logbook.Path, "home", nobody)
    with pytest.raises(NotWritten, match="set MEMLAB_LOGBOOK to a file"):
        append("a panel", TRACE)


def write_many(name):
    for _ in range(200):
        append(name, TRACE)


def test_several_kernels_can_write_at_once():
    names = ["one", "two", "three"]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_many, args=(name,)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    written = [entry.title for entry in read()[0]]
    assert {name: written.count(name) for name in names} == dict.fromkeys(names, 200)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permission bits bind nobody here")
def test_a_file_that_cannot_be_written_by_its_rights(file):
    file.parent.mkdir(mode=0o500)
    with pytest.raises(NotWritten, match="cannot be written"):
        append("a panel", TRACE)


def test_a_file_that_cannot_be_written_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "in_the_way").write_text("")
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "in_the_way" / "logbook.jsonl"))
    with pytest.raises(NotWritten, match="set MEMLAB_LOGBOOK to a file that can"):
        append("a panel", TRACE)


def test_without_the_variable_it_is_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("MEMLAB_LOGBOOK")
    monkeypatch.setattr(logbook.Path, "home", lambda: tmp_path)
    assert logbook_file() == tmp_path / ".memlab" / "logbook.jsonl"
