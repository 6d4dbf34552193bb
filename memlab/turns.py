"""Runs that measure take turns: two at once would see each other's bytes on a card, and each other's seconds too."""

import contextlib
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from memlab.errors import Stopped

WAITS = "Another run is being measured in this process: this one begins when that one ends."
_NOT_THE_READERS = (str(Path(__file__).parent), contextlib.__file__)
SECONDS = 0.05  # between two looks at whether to stop waiting

_measuring = threading.RLock()  # a run inside a run, in one thread, goes on
_long = False  # whether the run whose turn it is measures: one that predicts is over in a moment


def _warn() -> None:
    """Say it of the line that called memlab: the run is begun in different depths below it."""
    calls = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)]
    readers = (call for call in calls if not call[0].startswith(_NOT_THE_READERS))
    warnings.warn_explicit(WAITS, UserWarning, *next(readers, calls[-1]))


@contextlib.contextmanager
def turn(stopping: threading.Event, on_wait: Callable[[], None] | None, *, brief: bool = False) -> Iterator[None]:
    """A context in which no other thread of this process is inside one.

    Args:
        stopping: ends the waiting when it is set.
        on_wait: called once if there is something to wait for; by default that is said in a warning, unless the other
            run is a brief one.
        brief: whether this one is: a prediction.

    Raises:
        Stopped: ``stopping`` was set while waiting.
    """
    global _long
    if not _measuring.acquire(blocking=False):
        told = on_wait is not None
        if on_wait is not None:
            on_wait()
        # Whose turn begins says so a moment later: it is looked at again and again.
        while not _measuring.acquire(timeout=SECONDS):
            if stopping.is_set():
                raise Stopped
            if _long and not told:
                _warn()
                told = True
    before, _long = _long, not brief
    try:
        yield
    finally:
        _long = before
        _measuring.release()
