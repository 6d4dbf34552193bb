"""When a prediction has run enough steps: its steps are alike, or they never will be."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from memlab.units import format_bytes

MOST_STEPS = 8


class Footprint(NamedTuple):
    """Bytes allocated when a step began, and its peak."""

    start: int
    peak: int


def is_steady(steps: Sequence[Footprint]) -> bool:
    """Return True if the last step equals the one before it, so that later steps will be the same."""
    return len(steps) > 1 and steps[-1] == steps[-2]


def unsteadiness(steps: Sequence[Footprint]) -> str:
    """Return a sentence if :data:`MOST_STEPS` steps have not become steady; ``""`` for fewer, and for steady ones."""
    if len(steps) < MOST_STEPS or is_steady(steps):
        return ""
    # What a step begins with may grow under a peak that is due to other things, as to batches of several sizes.
    growth = _growth([step.peak for step in steps]) or _growth([step.start for step in steps])
    if growth:
        return f"It never is steady: it grows by {format_bytes(growth)} every step"
    return f"It is not steady: of its first {len(steps)} steps no two in a row are alike"


def _growth(values: Sequence[int]) -> int:
    """By how much they grow on average, 0 if not in every step. The first step is left out: it sets up what stays."""
    values = values[1:]
    rises = all(later > earlier for earlier, later in pairwise(values))
    return (values[-1] - values[0]) // (len(values) - 1) if rises else 0
