"""Writing a file, or a line of it, whole or not at all."""

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path

from memlab.errors import NotWritten

_NEXT_STEP = {
    errno.ENOSPC: "free some space on the disk and try again",
    errno.EDQUOT: "free some of your disk quota and try again",
    errno.EEXIST: "a file is where a folder is needed, so move it or choose another folder",
    errno.ENOTDIR: "a file is where a folder is needed, so move it or choose another folder",
    errno.EISDIR: "a folder has that name already, so choose another name",
}


def working_folder() -> str:
    """Return the folder that relative paths begin in, for a message; the shell may stand in a folder that is gone."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "a folder that is gone"


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write ``data`` (text as UTF-8) to ``path``, making its folder if need be.

    The bytes go to a temporary file beside ``path``, which then takes its name in one step: whatever
    goes wrong, ``path`` holds either all of the old content or all of the new. A link stays a link, to the new
    content; who may read a file stays as it is; and what is no file (``/dev/null``, a pipe) is written to.

    Raises:
        NotWritten: when it cannot be written; the old file is whole and no temporary file is left.
    """
    path = Path(path)
    data = data.encode() if isinstance(data, str) else data
    if _is_special(path):
        _write_into(path, data)
        return
    path = resolved(path)
    make_folder(path.parent)
    # Not named after `path`, so that a name of the longest legal length still works.
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            # Some file systems tell only here that the disk is full.
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def resolved(path: Path) -> Path:
    """The whole path, without links.

    Raises:
        NotWritten: no path can be, as where links lead to each other.
    """
    try:
        whole = path.resolve()
        if whole.is_symlink():  # from Python 3.13 on, links in a circle are given back
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return whole
    except (OSError, RuntimeError, ValueError) as error:
        raise _not_written(path, error) from error


def _is_special(path: Path) -> bool:
    """Return True if the path exists and is neither a file nor a folder, such as a device or a pipe."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # what is wrong is told when it is written
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _write_into(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise _not_written(path, error) from error


def append_line(path: str | Path, line: str) -> None:
    """Write a line at the end of ``path``, making it and its folder if need be; only its owner may read a new file.

    The line is written in one piece, so several processes may do so at once, and what a crash leaves half written costs
    that line alone.

    Raises:
        NotWritten: when it cannot be written whole.
    """
    path = Path(path)
    make_folder(path.parent)
    # A line end before too: what a crash cut off must not swallow this line.
    data = f"\n{line}\n".encode()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(descriptor, data) < len(data):  # as much as the disk had room for
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _not_written(path, error) from error


def make_folder(path: str | Path) -> None:
    """Make the folder ``path`` and those above it; nothing happens if it is there.

    Raises:
        NotWritten: when it cannot be made.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(Path(path), error) from error


def _not_written(path: Path, error: Exception) -> NotWritten:
    number, reason = (error.errno, error.strerror) if isinstance(error, OSError) else (None, error)
    next_step = _NEXT_STEP.get(number or 0, "choose a folder that you can write to")
    return NotWritten(f"{path} could not be written ({reason}), and nothing was changed there: {next_step}.")
