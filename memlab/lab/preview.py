"""A prediction, nearly: worked out from two that are known, until the exact one is there.

Two predictions that differ in one number, as in the batch size, mostly allocate and free the same things in the same
order, and each tensor has one size or grows with the number, so two of them say it for all. What the allocator adds
does not: blocks larger than their tensors, and some operators' workspaces.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from memlab.categories import Category
from memlab.oom import OutOfMemory
from memlab.trace import Event, Storage, Trace

WORKSPACE = Category.WORKSPACE
ROUNDED = 0.01  # of a size: it may be rounded up


class Gap(NamedTuple):
    """The change of the workspace between two other events: it rises by ``highest`` bytes, and ends at ``level``."""

    highest: int
    level: int
    at: Event | None  # that reaches the highest, or the first


NOTHING = Gap(0, 0, None)
NO_WORKSPACE = Storage("", (), "", WORKSPACE, 0)


@dataclass(frozen=True)
class Outline:
    """A prediction as it can be compared with others: its events but for the workspace's, each after a gap."""

    trace: Trace
    number: float
    events: tuple[tuple[Gap, Event | None], ...]

    @classmethod
    def of(cls, trace: Trace, number: float) -> "Outline":
        """The outline of what was predicted for the number."""
        return cls(trace, number, tuple(_with_gaps(trace.events)))

    @cached_property
    def order(self) -> tuple[object, ...]:
        """The events without their sizes."""
        return tuple((e.category, e.phase, e.module, e.op, e.bytes > 0) for e in self._others)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each."""
        return tuple(event.bytes for event in self._others)

    @property
    def _others(self) -> Iterator[Event]:
        return (event for _, event in self.events if event is not None)


def _with_gaps(events: tuple[Event, ...]) -> Iterator[tuple[Gap, Event | None]]:
    gap = NOTHING
    for event in events:
        if event.category is WORKSPACE:
            level = gap.level + event.bytes
            highest = level > gap.highest or gap.at is None
            gap = Gap(max(gap.highest, level), level, event if highest else gap.at)
        else:
            yield gap, event
            gap = NOTHING
    yield gap, None


def between(first: Outline, second: Outline, number: float, *, room: int) -> Trace | None:
    """Nearly what would be predicted for a number; None where these two do not say it.

    It is for drawing only: nobody is given it as a prediction.

    Args:
        number: beyond those of the two, tensors go on growing or shrinking, the workspace does not.
        room: bytes; where more would be allocated, memory runs out.
    """
    if first.order != second.order or not _is_plain(first, second):
        return None
    part = (number - first.number) / (second.number - first.number)
    mix, near = Mixture(part), (first if part < 0.5 else second).trace
    start = {name: mix.bytes(name, *(o.trace.start.get(name, 0) for o in (first, second))) for name in Category}
    live, events, oom = sum(start.values()), [], None
    for event in mix.events(first, second):
        if live + event.bytes > room:
            oom = OutOfMemory(event.bytes, live, room, event.phase, event.module, event.op)
            break
        live += event.bytes
        events.append(event)
        if live < 0:
            return None
    return replace(
        near,
        source="about",
        steps=(),
        start={name: count for name, count in start.items() if count},
        events=tuple(events),
        storages=tuple(mix.storages(first.trace, second.trace)),
        flops=mix.bytes(Category.TEMPORARY, first.trace.flops, second.trace.flops),
        peak_reserved=None,
        reserved=(),
        waits=() if oom else mix.waits(first.trace, second.trace),
        oom=oom,
        least_seconds=mix.seconds(first.trace.least_seconds, second.trace.least_seconds),
        likely_seconds=mix.seconds(first.trace.likely_seconds, second.trace.likely_seconds),
    )


def _is_plain(first: Outline, second: Outline) -> bool:
    """Return whether each tensor has one size, or so many bytes times the number: not its square, or a part.

    Else two of them do not say what is between.
    """
    low, high = first.number, second.number
    pairs = set(zip(first.sizes, second.sizes, strict=True))
    return all(a == b or abs(a * high - b * low) <= abs(ROUNDED * b * low) for a, b in pairs)


@dataclass(frozen=True)
class Mixture:
    """Numbers ``part`` of the way from one to another."""

    part: float

    def bytes(self, category: Category, first: int, second: int) -> int:
        """Bytes of a category."""
        part = min(max(self.part, 0.0), 1.0) if category is WORKSPACE else self.part
        return round(first + (second - first) * part)

    def seconds(self, first: float | None, second: float | None) -> float | None:
        """Seconds, where both are known."""
        return None if first is None or second is None else self._moment(first, second)

    def waits(self, first: Trace, second: Trace) -> tuple[tuple[float, float], ...]:
        """From when to when a rank waits for others, where both wait as often."""
        if len(first.waits) != len(second.waits):
            return ()
        pairs = zip(first.waits, second.waits, strict=True)
        return tuple((self._moment(a, c), self._moment(b, d)) for (a, b), (c, d) in pairs)

    def _moment(self, first: float, second: float) -> float:
        return max(0.0, first + (second - first) * self.part)

    def storages(self, first: Trace, second: Trace) -> Iterator[Storage]:
        """As the first has them, and then its workspace if only the second has one; a shape that differs is left out.

        But for the workspace, which may be first used elsewhere, both have the same in the same order.
        """
        workspace = next((storage for storage in second.storages if storage.category is WORKSPACE), NO_WORKSPACE)
        others = (storage for storage in second.storages if storage.category is not WORKSPACE)
        ones = first.storages if _workspace(first) < len(first.storages) else (*first.storages, NO_WORKSPACE)
        for one in ones:
            other = workspace if one.category is WORKSPACE else next(others, one)
            shape = one.shape if one.shape == other.shape else ()
            start = one.start if one.start == other.start else self.bytes(one.category, one.start, other.start)
            yield one._replace(shape=shape, start=start)

    def events(self, first: Outline, second: Outline) -> Iterator[Event]:
        """Events of two outlines that have the same order, none earlier than the one before it."""
        workspace, now = _workspace(first.trace), 0.0
        for (gap, event), (other_gap, other) in zip(first.events, second.events, strict=True):
            if where := gap.at or other_gap.at:
                highest = self.bytes(WORKSPACE, gap.highest, other_gap.highest)
                level = self.bytes(WORKSPACE, gap.level, other_gap.level)
                changes = (highest, level - highest)
                yield from (where._replace(bytes=c, seconds=now, storage=workspace) for c in changes if c)
            if event is not None and other is not None:
                now = max(now, event.seconds + (other.seconds - event.seconds) * self.part)
                count = self.bytes(event.category, event.bytes, other.bytes)
                yield event._replace(bytes=count, seconds=now)


def _workspace(trace: Trace) -> int:
    """The place of the workspace among the storages, behind them where they lack it."""
    places = (place for place, storage in enumerate(trace.storages) if storage.category is WORKSPACE)
    return next(places, len(trace.storages))
