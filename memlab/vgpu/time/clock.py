"""Counts what the operators of a step do, those that are alike together."""

from collections import defaultdict
from typing import Any

from memlab.tracking.operators import operator
from memlab.vgpu.results import Answer
from memlab.vgpu.time.estimate import FITTED, likely_seconds, likely_seconds_of
from memlab.vgpu.time.roofline import least_seconds
from memlab.vgpu.time.speeds import Speed
from memlab.vgpu.time.work import NOTHING, Work, work_of


class Clock:
    """The work of one step on a card of this speed.

    Attributes:
        streams: what was given to each stream, how often each.
    """

    def __init__(self, speed: Speed):
        self._speed = speed
        self.start()

    def start(self) -> None:
        """Begin a step."""
        self.streams: defaultdict[int, defaultdict[Work, int]] = defaultdict(lambda: defaultdict(int))
        self._busy: defaultdict[int, float] = defaultdict(float)  # seconds of each stream, so far
        self._launched = 0.0  # seconds of the host
        self._seconds: dict[Work, float] = {}

    def count(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, answer: Answer | None, stream: int
    ) -> None:
        """One operator has run; ``answer`` is what was remembered of it, if anything."""
        if operator(func).is_view:  # half of what a network calls
            return
        known = answer is not None and answer.func is func and not (len(args) > 1 and args[0] is args[1])
        work = answer.work if known and answer is not None else None
        if work is None:
            work = work_of(func, args, kwargs, out)
            if known and answer is not None:
                answer.work = work
        if work is not NOTHING:
            self.streams[stream][work] += 1
            if (seconds := self._seconds.get(work)) is None:
                seconds = self._seconds[work] = likely_seconds_of(work, self._speed)
            self._busy[stream] += seconds
            self._launched += FITTED.launch

    def now(self) -> float:
        """How long the step has probably taken so far: as :meth:`likely_seconds`, for each moment."""
        return max(self._launched, *self._busy.values()) if self._busy else 0.0

    def least_seconds(self) -> float:
        """What the step takes at least."""
        return least_seconds(self.streams, self._speed)

    def likely_seconds(self) -> float:
        """What it probably takes."""
        return max(self.least_seconds(), likely_seconds(self.streams, self._speed))
