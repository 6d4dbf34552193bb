"""What each storage was for. Labels are given after the step.

What a storage was for (an activation, a temporary) is only known once it is known when it was freed.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from memlab.trace import Category, Phase
from memlab.tracking.storages import Record


@dataclass(frozen=True)
class Marks:
    """Moments of a step, each the number of events before it: where phases begin and recomputations end."""

    begins: dict[Phase, list[int]] = field(default_factory=lambda: {phase: [] for phase in Phase})
    recompute_ends: list[int] = field(default_factory=list)


def label(record: Record, marks: Marks) -> Category:
    """What the storage was for."""
    if record.resident:
        return record.resident
    if record.born < 0:  # alive since an earlier step, labelled there
        return record.category or Category.TEMPORARY
    if record.external:
        return Category.INPUT
    if record.recomputed:
        return Category.RECOMPUTED if _alive_at(record, marks.recompute_ends) else Category.TEMPORARY
    if record.phase is Phase.FORWARD:
        return Category.ACTIVATION if _alive_at(record, marks.begins[Phase.BACKWARD]) else Category.TEMPORARY
    if record.phase is Phase.OTHER and _alive_at(record, marks.begins[Phase.FORWARD]):
        return Category.INPUT
    return Category.TEMPORARY


def _alive_at(record: Record, moments: list[int]) -> bool:
    """Whether the record still lived at the first of the moments (ascending) after its birth."""
    index = bisect_right(moments, record.born)
    return index < len(moments) and (record.freed is None or record.freed >= moments[index])
