import errno
import os
from io import FileIO
from pathlib import Path

import pytest

from memlab.errors import NotWritten
from memlab.files import make_folder, working_folder, write_atomically


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("data", "stored"), [(b"\x00\xff", b"\x00\xff"), ("6 µs\n", "6 µs\n".encode())])
def test_writes_bytes_and_text_and_makes_the_folder(tmp_path, data, stored):
    path = tmp_path / "new" / "folder" / "trace.json"
    write_atomically(path, data)
    assert path.read_bytes() == stored
    assert [file.name for file in path.parent.iterdir()] == ["trace.json"]


def test_replaces_an_old_file(tmp_path):
    path = tmp_path / "trace.json"
    write_atomically(path, "old and longer")
    write_atomically(path, "new")
    assert path.read_text() == "new"


def test_a_name_of_the_longest_legal_length(tmp_path):
    write_atomically(tmp_path / ("n" * 255), "data")
    assert (tmp_path / ("n" * 255)).read_text() == "data"


@pytest.mark.parametrize("failing", ["os.fsync", "os.replace"])
def test_a_full_disk_leaves_the_old_file_whole_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "trace.json"
    path.write_text("old")
    monkeypatch.setattr(failing, full_disk)
    with pytest.raises(NotWritten, match=r"trace\.json could not be written \(No space left on device\).*free some"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full, a file that is always full")
def test_a_really_full_file(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("old")
    monkeypatch.setattr("memlab.files.open", lambda *_: FileIO("/dev/full", "w"), raising=False)
    with pytest.raises(NotWritten, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"


def test_an_interrupt_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "trace.json", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_is_needed(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(NotWritten, match=r"notes\.txt could not be written.*a file is where a folder is needed"):
        make_folder(file)
    with pytest.raises(NotWritten, match="a file is where a folder is needed"):
        write_atomically(file / "deeper" / "trace.json", "new")
    assert file.read_text() == "mine"


def test_a_folder_where_a_file_is_needed(tmp_path):
    (tmp_path / "trace.json").mkdir()
    with pytest.raises(NotWritten, match=r"trace\.json could not be written.*a folder has that name already"):
        write_atomically(tmp_path / "trace.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(NotWritten, match="choose a folder that you can write to"):
            write_atomically(tmp_path / "trace.json", "new")
    finally:
        tmp_path.chmod(0o700)


def test_permission_denied_says_so(tmp_path, monkeypatch):
    def denied(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("memlab.files.open", denied, raising=False)
    with pytest.raises(NotWritten, match=r"\(Permission denied\).*choose a folder that you can write to"):
        write_atomically(tmp_path / "trace.json", "new")


def test_a_link_stays_a_link_and_a_mode_stays_a_mode(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)


@pytest.mark.parametrize("name", ["loop", "n" * 300, "nul\0"])
def test_a_path_that_cannot_be_says_so(tmp_path, name):
    (tmp_path / "loop").symlink_to("other")
    (tmp_path / "other").symlink_to("loop")
    with pytest.raises(NotWritten, match="could not be written"):
        write_atomically(tmp_path / name, "new")
    assert sorted(os.listdir(tmp_path)) == ["loop", "other"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
def test_what_is_no_file_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    write_atomically("/dev/null", "away")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps a folder that somebody stands in")
def test_a_shell_may_stand_in_a_folder_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert working_folder() == str(tmp_path)
    tmp_path.rmdir()
    assert working_folder() == "a folder that is gone"
