"""Runs that measure take turns: two at once would see each other's bytes on a card, and each other's seconds too."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memlab.errors import Stopped

SECONDS = 0.05  # between two looks at whether to stop waiting

_measuring = threading.RLock()  # a run inside a run, in one thread, goes on


def _warn() -> None:
    warnings.warn("Another run is being measured in this process: this one begins when that one ends.", stacklevel=5)


@contextmanager
def turn(stopping: threading.Event, on_wait: Callable[[], None] | None) -> Iterator[None]:
    """A context in which no other thread of this process is inside one.

    Args:
        stopping: ends the waiting when it is set.
        on_wait: called once if there is something to wait for; by default that is said in a warning.

    Raises:
        Stopped: ``stopping`` was set while waiting.
    """
    if not _measuring.acquire(blocking=False):
        (on_wait or _warn)()
        while not _measuring.acquire(timeout=SECONDS):
            if stopping.is_set():
                raise Stopped
    try:
        yield
    finally:
        _measuring.release()
