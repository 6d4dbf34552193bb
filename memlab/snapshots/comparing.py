"""Two snapshots side by side: totals, what has more by line, and where their allocations first part."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from memlab.allocator.settings import SMALL_LIMIT, rounded
from memlab.snapshots.replay import Allocation
from memlab.snapshots.telling import SnapshotExplanation, explain_snapshot
from memlab.units import format_bytes

_MOST_LINES = 15


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two snapshots; as text a table for the terminal.

    Attributes:
        first, second: what each says alone.
    """

    first: SnapshotExplanation
    second: SnapshotExplanation

    @cached_property
    def by_line(self) -> dict[str, tuple[int, int]]:
        """Allocated bytes of both by line, the largest difference first; the backward pass is one line."""
        lines: dict[str, list[int]] = {}
        for side, said in enumerate((self.first, self.second)):
            for line, size in said.by_own_line.items():
                lines.setdefault(line, [0, 0])[side] = size
        ordered = sorted(lines.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
        return {line: (before, after) for line, (before, after) in ordered}

    @cached_property
    def parted(self) -> int | None:
        """The number of allocations, from the first on, that have the same sizes in both; None where all have that are
        in both.
        """
        replays = (self.first.replay, self.second.replay)
        is_predicted = any(replay.snapshot.is_predicted for replay in replays)
        pairs = enumerate(zip(replays[0].order, replays[1].order, strict=False))
        return next((place for place, pair in pairs if not _alike(*pair, is_predicted)), None)

    @cached_property
    def order(self) -> str:
        """A sentence on the first allocation that differs; empty if the beginnings of the two cannot be compared.

        Both histories have to begin with nothing allocated, and their first allocations to be equal.
        """
        replays = (self.first.replay, self.second.replay)
        ours, theirs = (replay.order for replay in replays)
        if not (all(replay.is_whole for replay in replays) and ours and theirs) or self.parted == 0:
            return ""
        if self.parted is not None:
            said = f"{_said(ours[self.parted])} against {_said(theirs[self.parted])}"
            return f"{_ordinal(self.parted + 1)} allocation is the first that differs: {said}."
        if len(ours) == len(theirs):
            return f"All {len(ours):,} allocations have the same sizes, in the same order."
        equal, longer = min(len(ours), len(theirs)), "A" if len(ours) > len(theirs) else "B"
        return f"The first {equal:,} allocations have the same sizes, in the same order; {longer} goes on after them."

    def __repr__(self) -> str:
        return f"<Comparison: {self.first.replay.snapshot.name}, {self.second.replay.snapshot.name}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        one, two = self.first, self.second
        yield f"A: {one.replay.snapshot.name}"
        yield f"B: {two.replay.snapshot.name}"
        yield f"{'A':>21}{'B':>10}{'B - A':>11}"
        yield _row("peak", one.peak_allocated, two.peak_allocated)
        yield _row("at the end", one.allocated, two.allocated)
        yield _row("reserved", one.reserved, two.reserved)
        yield ""
        yield f"By your own lines, {one.when if one.when == two.when else f'A {one.when}, B {two.when}'}:"
        changed = [(line, sizes) for line, sizes in self.by_line.items() if sizes[0] != sizes[1]]
        yield from (f"{_row('', *sizes)}  {line}" for line, sizes in changed[:_MOST_LINES])
        if rest := changed[_MOST_LINES:]:
            yield f"{_row('', *_sum(rest))}  {len(rest)} more that differ by less"
        if equal := [(line, sizes) for line, sizes in self.by_line.items() if sizes[0] == sizes[1]]:
            yield f"{_row('', *_sum(equal))}  {len(equal)} that are equal in both"
        if self.order:
            yield ""
            yield self.order


def compare_snapshots(first: str | Path, second: str | Path) -> Comparison:
    """Compare two snapshots of one script: before and after a change, two ranks, a real and a predicted run.

    Args:
        first, second: their files.

    Raises:
        BadValue: as of :func:`memlab.snapshots.explain_snapshot`.
    """
    return Comparison(explain_snapshot(first), explain_snapshot(second))


def _alike(one: Allocation, other: Allocation, is_predicted: bool) -> bool:
    """True if both ask for the same. A prediction's sizes are of blocks, and of one a rest may not be split off."""
    sizes = rounded(one.asked), rounded(other.asked)
    slack = SMALL_LIMIT if is_predicted and min(sizes) > SMALL_LIMIT else 0
    return abs(sizes[0] - sizes[1]) <= slack


def _said(one: Allocation) -> str:
    return f"{format_bytes(one.asked)} at {one.stack.place}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"The {number:,}{ending}"


def _row(name: str, before: int, after: int) -> str:
    difference = after - before
    shown = f"+{format_bytes(difference)}" if difference > 0 else format_bytes(difference)
    return f"{name:<11}{format_bytes(before):>10}{format_bytes(after):>10}{shown:>11}"


def _sum(rows: list[tuple[str, tuple[int, int]]]) -> tuple[int, int]:
    return sum(sizes[0] for _, sizes in rows), sum(sizes[1] for _, sizes in rows)
