"""A process that is forked within a step, as a DataLoader's worker is, is not watched: its work is not the step's."""

import os
from contextlib import AbstractContextManager
from typing import Any

from memlab.tracking.internals import set_modes_aside
from memlab.tracking.storages import watching


def _let_go() -> None:
    """On a card it could not be watched, the allocator's counters are not to be had there; in a prediction its tensors
    would have no numbers to send.
    """
    trackers = watching()
    for tracker in trackers:
        tracker._recording = False
    if trackers:
        _left_behind.append(set_modes_aside())
        _left_behind[-1].__enter__()


# Never left again: the process ends without coming back to the step.
_left_behind: list[AbstractContextManager[Any]] = []
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_let_go)
