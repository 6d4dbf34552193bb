"""Counts what the operators of a step do, those that are alike together."""

from collections import defaultdict
from typing import Any

import torch

from memlab.tracking.operators import operator
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Speed
from memlab.vgpu.results import Answer
from memlab.vgpu.time.estimate import FITTED, likely_seconds, likely_seconds_of
from memlab.vgpu.time.link import RECEIVE, SEND, WAIT, Link
from memlab.vgpu.time.operator_work import NOTHING, Kind, Work, moved_bytes, work_of
from memlab.vgpu.time.roofline import least_seconds


class Clock:
    """The work of one step on a card of this speed.

    Attributes:
        streams: what was given to each stream, how often each.
        waits: from when to when, in seconds of the step, nothing was computed because other ranks' bytes had to come;
            without the one for the last collective, see :meth:`last_wait`.
    """

    def __init__(self, speed: Speed):
        self._speed = speed
        self._link = Link(speed)
        self._launches: dict[int, Work] = {}
        self.captured: list[Work] | None = None  # while a CUDA graph is made of what is given to the card
        self.start()

    def start(self) -> None:
        """Begin a step."""
        self.streams: defaultdict[int, defaultdict[Work, int]] = defaultdict(lambda: defaultdict(int))
        self._busy: defaultdict[int, float] = defaultdict(float)  # seconds of each stream, so far
        self._launched = 0.0  # seconds of the host
        self._seconds: dict[Work, float] = {}
        self._link.start()
        self._since = 0.0  # when the last collective was launched
        self.waits: list[tuple[float, float]] = []

    def count(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, answer: Answer | None, stream: int
    ) -> Work | None:
        """One operator has run; ``answer`` is what was remembered of it, if anything. What it did, if it works."""
        named = operator(func)
        if named.is_view:  # half of what a network calls
            return None
        if named.collective or named.name == WAIT or named.name in RECEIVE:
            self._communicate(func, args, kwargs, stream)
            return None
        known = answer is not None and answer.func is func and not (len(args) > 1 and args[0] is args[1])
        work = answer.work if known and answer is not None else None
        if work is None or not work.is_still_so():
            work = work_of(func, args, kwargs, out)
            if known and answer is not None:
                answer.work = work
        if work is NOTHING:
            return None
        self.do(work, stream)
        return work

    def launch(self, args: tuple[Any, ...], stream: int) -> None:
        """A kernel that a compiler has made reads or writes each of these tensors once."""
        moved = moved_bytes(args)
        work = self._launches.get(moved)
        if work is None:
            work = self._launches[moved] = Work(Kind.MEMORY, torch.float32, 0, 0, moved, 0)
        self.do(work, stream)

    def do(self, work: Work, stream: int) -> None:
        """A stream is given this to do, or a graph that will be."""
        if self.captured is not None:
            self.captured.append(work)
            return
        self._link.work_begins()
        self.streams[stream][work] += 1
        if (seconds := self._seconds.get(work)) is None:
            seconds = self._seconds[work] = likely_seconds_of(work, self._speed)
        self._busy[stream] += seconds
        self._launched += FITTED.launch

    def replay(self, captured: list[Work], stream: int) -> None:
        """A stream is given a graph: the host launches it once."""
        launched = self._launched
        for work in captured:
            self.do(work, stream)
        self._launched = launched + FITTED.launch

    def _communicate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stream: int) -> None:
        named = operator(func)
        self._launched += FITTED.launch
        if named.collective is not None:
            self._link.send(named.collective, args, self.now())
        is_traded = (named.name == SEND or named.name in RECEIVE) and self._link.trade(named.name, args)
        if is_traded or named.name == WAIT or Arguments(func, args, kwargs).get("async_op") is False:
            begun = self.now()
            self._busy[stream] = max(self._busy[stream], self._link.free)
            if self.now() > begun:
                self.waits.append((begun, self.now()))
        self._since = self.now()

    def now(self) -> float:
        """Return the probable seconds of the step so far: as :meth:`likely_seconds`, for each moment."""
        return max(self._launched, *self._busy.values()) if self._busy else 0.0

    def least_seconds(self) -> float:
        """Return the seconds that the step takes at least."""
        return least_seconds(self.streams, self._speed)

    def likely_seconds(self) -> float | None:
        """Return the seconds that the step probably takes; None where it takes turns with other ranks."""
        return None if self._link.takes_turns else self._alone() + self._exposed()

    def communication(self) -> str:
        """Return a sentence on what the estimate assumes of other ranks; or ``""``."""
        return "" if self._link.takes_turns else self._link.sentence(self._exposed())

    def last_wait(self) -> tuple[float, float] | None:
        """Return from when to when everything after the last collective waits for it; None if it need not.

        DistributedDataParallel's last bucket is such a one: the optimizer waits for it. :meth:`now` does not know while
        the step goes on that no other collective will come, so moments after it are that much too early.
        """
        if self._link.takes_turns or self._link.free <= self._since:
            return None
        return self._since, self._link.free

    def _alone(self) -> float:
        """Seconds without a word to other ranks."""
        return max(self.least_seconds(), likely_seconds(self.streams, self._speed))

    def _exposed(self) -> float:
        """Seconds of communication beside which nothing is computed: what follows the last collective waits for it."""
        return max(0.0, max(self.now(), self._link.free + self.now() - self._since) - self._alone())
