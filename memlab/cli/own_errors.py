"""An error of the reader's own loop, shown as Python shows errors, without the frames that are not the reader's."""

import sysconfig
from pathlib import Path
from traceback import StackSummary, TracebackException

_OTHERS = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))


def shortened(error: BaseException) -> str:
    """The traceback; ``""`` where no frame is the reader's, for then the error is memlab's own."""
    told = TracebackException.from_exception(error)
    own = [frame for frame in told.stack if not frame.filename.startswith((*_OTHERS, "<frozen"))]
    told.stack = StackSummary.from_list(own)
    told.__cause__ = told.__context__ = None
    return "".join(told.format()) if own else ""
