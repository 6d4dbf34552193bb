"""The search along one line of a grid: its two ends, and the last value between them that fits.

A prediction costs the same whatever its settings, so what counts is how many there are. Both ends are predicted on a
card that has all the memory they want. Between them memory is taken to grow as a straight line, which says where it
meets the card's; from there the last value that fits is looked for, on the card. A value that needs less than both
ends, or more, shows that there is no such line: then every value is tried.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from memlab.fitting.result import Candidate

# What is predicted for a value, on the card or on one with all the memory; None where the loop refuses the value.
Predict = Callable[[Any, bool], Candidate | None]

SPARE = 0.9  # of the card: up to here the two steps that are looked at tell enough


class _Uneven(Exception):
    """Memory does not grow along the line."""


class Line:
    """The values of one setting, the rest of the settings fixed.

    Args:
        values: in order.
        predict: of one of them; True for a card that ends where it does.
        room: bytes that the card has.

    Attributes:
        fitting: what fits of all that was tried.
        low, high: the ends, the one that needs less memory first; None where the loop refuses one.
    """

    def __init__(self, values: Sequence[Any], predict: Predict, room: int):
        self.fitting: list[Candidate] = []
        self.low: Candidate | None = None
        self.high: Candidate | None = None
        self._values = list(values)
        self._predict = predict
        self._room = room
        self._known: dict[Any, Candidate | None] = {}

    def look(self) -> None:
        """Predict both ends."""
        self.low = self._want(self._values[0])
        self.high = self._want(self._values[-1]) if len(self._values) > 1 else self.low
        if self.low and self.high and _peak(self.high) < _peak(self.low):
            self._values.reverse()
            self.low, self.high = self.high, self.low

    def is_beaten_by(self, other: "Line") -> bool:
        """Return True if the other line takes no more memory and no more time at both ends."""
        ends = ((self.low, other.low), (self.high, other.high))
        return all(mine and its and _peak(its) <= _peak(mine) and its.seconds <= mine.seconds for mine, its in ends)

    def search(self) -> None:
        """Find the last value that fits."""
        try:
            self._search()
        except _Uneven:
            for value in self._values:
                self._try(value)

    @property
    def best(self) -> Candidate | None:
        """The fastest of what is known to fit."""
        return min(self.fitting, key=lambda candidate: (candidate.seconds, candidate.needed), default=None)

    def _search(self) -> None:
        if self.low is None or self.high is None:
            raise _Uneven
        fits, fails = 0, len(self._values) - 1
        if not self._fits(self._values[fits]) or self._fits(self._values[fails]):
            return
        guess, step = self._meeting(self.low, self.high), 1
        while fails - fits > 1:
            if not fits < guess < fails:
                guess = (fits + fails) // 2
            if self._fits(self._values[guess]):
                fits, guess = guess, guess + step
            else:
                fails, guess = guess, guess - step
            step *= 2

    def _meeting(self, low: Candidate, high: Candidate) -> int:
        """Return the index of the last value at which a straight line through both ends fits the card's memory."""
        first, last = self._values[0], self._values[-1]
        part = (self._room - low.needed) / max(1, high.needed - low.needed)
        return bisect_right(self._values, part, key=lambda value: (value - first) / (last - first)) - 1

    def _want(self, value: Any) -> Candidate | None:
        candidate = self._predict(value, False)
        # What it wants is what it gets, where the card has that and some to spare; more is more than the card has.
        if candidate is None or candidate.needed <= SPARE * self._room or _peak(candidate) > self._room:
            self._keep(value, candidate)
        return candidate

    def _fits(self, value: Any) -> bool:
        candidate = self._try(value)
        if candidate is None or not (candidate.trace.oom or self._is_between(candidate)):
            raise _Uneven
        return candidate in self.fitting

    def _try(self, value: Any) -> Candidate | None:
        if value not in self._known:
            self._keep(value, self._predict(value, True))
        return self._known[value]

    def _is_between(self, candidate: Candidate) -> bool:
        return bool(self.low and self.high and _peak(self.low) <= _peak(candidate) <= _peak(self.high))

    def _keep(self, value: Any, candidate: Candidate | None) -> None:
        self._known[value] = candidate
        if candidate and not candidate.trace.oom and candidate.needed <= self._room:
            self.fitting.append(candidate)


def _peak(candidate: Candidate) -> int:
    return candidate.trace.peak_allocated
