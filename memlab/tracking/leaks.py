"""Leaks, which steps leave behind for good: losses kept with their graphs, outputs in a list, a cache that grows."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from memlab.tracking.storages import Record
from memlab.units import MIB

WORTH_TELLING = MIB  # bytes a step; a loss that is kept, without its graph, takes 512


class Leak(NamedTuple):
    """Storages of the last two steps that are alive, without being a model's, an optimizer's or new.

    Attributes:
        nbytes: what a step leaves behind.
        line: of the training loop, the one that allocates most of it; 0 if that is not known.
    """

    nbytes: int
    line: int


def find_leak(alive: Iterable[Record], step: int) -> Leak | None:
    """Return what each step leaves behind, of the storages that are alive at the end of this one.

    A batch that was fetched ahead, or the outputs of the last step under a name of the loop's, are alive for a step or
    two. What stays was allocated in each of the two steps before, at one line.
    """
    by_line: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for record in alive:
        if record.resident is None and not record.external and step - 3 < record.step < step:
            by_line[record.line][record.step] += record.nbytes
    left = {line: min(steps.values()) for line, steps in by_line.items() if len(steps) == 2}
    if sum(left.values()) < WORTH_TELLING:
        return None
    return Leak(sum(left.values()), max(left, key=lambda line: left[line]))
