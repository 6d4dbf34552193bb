"""Errors as their reader needs them: without the frames of memlab, of PyTorch and of Python's own library."""

import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

_LIBRARIES = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OTHERS = (str(Path(__file__).parent), *_LIBRARIES, "<frozen")


def is_readers(filename: str) -> bool:
    """Return whether the code of a file is the reader's: not memlab's, PyTorch's, Python's or another package's."""
    return not filename.startswith(_OTHERS)


def readers_frames(error: BaseException) -> TracebackType | None:
    """The traceback of an error without the frames that are not the reader's; None where none is."""
    frames, part = [], error.__traceback__
    while part is not None:
        if is_readers(part.tb_frame.f_code.co_filename):
            frames.append(part)
        part = part.tb_next
    own = None
    for frame in reversed(frames):
        own = TracebackType(own, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return own


def place(error: BaseException) -> str:
    """The reader's line in which an error arose, after the name of its file if it has one: line 3: `loss.item()`."""
    frames = traceback.extract_tb(readers_frames(error))
    if not frames:
        return ""
    file = Path(frames[-1].filename)
    where = f"{file.name}, " if file.exists() else ""  # a cell of a notebook is in no file
    return f"{where}line {frames[-1].lineno}: `{frames[-1].line}`"


def show_readers_frames(error: BaseException) -> None:
    """Have a notebook show an error with the reader's frames alone. For debuggers and others it stays as it is."""
    if not hasattr(error, "_render_traceback_"):
        # IPython asks for it. No method of a class: the error is not memlab's; and bound to nothing, so that the error
        # does not lead to itself and its frames, with their tensors, end when it does.
        error._render_traceback_ = _rendered  # type: ignore[attr-defined]


def _rendered() -> list[str]:
    from IPython import get_ipython

    error = sys.exc_info()[1] or sys.last_value
    assert error is not None
    frames = readers_frames(error) or error.__traceback__
    told: list[str] = get_ipython().InteractiveTB.structured_traceback(type(error), error, frames, tb_offset=0)
    return told
