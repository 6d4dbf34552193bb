"""The category of each storage, found after the step.

Whether a storage was an activation or a temporary is only known once it is known when it was freed.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from memlab.categories import Category, Phase
from memlab.tracking.storages import Record


@dataclass
class Marks:
    """Moments of a step, each the number of events before it: where phases begin and recomputations end.

    A step that ``failed`` did not come to its end, where what was needed for a moment would have been free. In one that
    ``talks``, a real rank has sent something to others.
    """

    begins: dict[Phase, list[int]] = field(default_factory=lambda: {phase: [] for phase in Phase})
    recompute_ends: list[int] = field(default_factory=list)
    failed: bool = False
    talks: bool = False


def label(record: Record, marks: Marks) -> Category:
    """Return the category of a storage."""
    if record.resident:
        return record.resident
    if record.settled and record.born >= 0:
        return record.settled
    if record.external:
        # In backward it is gloo's own copy of what it reduces: C++ has made it.
        return Category.COMMUNICATION if marks.talks and record.phase is Phase.BACKWARD else Category.INPUT
    if record.born < 0:  # alive since an earlier step
        if record.yielded or record.category is Category.INPUT:
            return record.category
        is_data = record.phase is Phase.OTHER and _alive_at(record, marks.begins[Phase.FORWARD])
        return Category.INPUT if is_data else Category.HELD
    category, moments = _purpose(record, marks)
    if _alive_at(record, moments):
        return category
    is_over = record.freed is not None or marks.failed or record.yielded
    return Category.TEMPORARY if is_over else Category.HELD


def _purpose(record: Record, marks: Marks) -> tuple[Category, list[int]]:
    """Return the category of a storage if it lives to the next of some moments, and those moments (event indices)."""
    if record.recomputed:
        return Category.RECOMPUTED, marks.recompute_ends
    if record.phase is Phase.FORWARD:
        return Category.ACTIVATION, marks.begins[Phase.BACKWARD]
    if record.phase is Phase.OTHER:
        return Category.INPUT, marks.begins[Phase.FORWARD]
    return Category.TEMPORARY, []


def _alive_at(record: Record, moments: list[int]) -> bool:
    """Return True if the record still lived at the first of the moments (ascending) after its birth."""
    index = bisect_right(moments, record.born)
    return index < len(moments) and (record.freed is None or record.freed >= moments[index])
