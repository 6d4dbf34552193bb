"""A run on several ranks: real processes, each of them measured, seen from the process that started them."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from memlab.cluster import faults
from memlab.cluster.launch import Launch
from memlab.cluster.lines import Listener
from memlab.cluster.rank import Rank
from memlab.cluster.size import backend
from memlab.cluster.target import target_of
from memlab.devices import Cpu
from memlab.errors import BadValue
from memlab.protocol import Train, check_world_size
from memlab.run import Run
from memlab.trace import Step, Trace
from memlab.turns import turn
from memlab.units import parse_bytes

TIMEOUT = 120.0  # seconds without a word of a rank
START = 120.0  # seconds to the first one: more than a slow machine takes to import PyTorch
LOOK = 0.1  # seconds between two looks at whether the run shall stop
ANSWER = 0.5  # seconds in which a rank that is asked where it stands has begun to say so
LAST = 0.5  # seconds in which it is heard here that a rank has died, after another has failed by it
GRACE = 3.0  # seconds in which the other ranks, and torchrun, may say why a run has failed


def measure(
    train: Train,
    /,
    *,
    world_size: int = 2,
    steps: int = 3,
    device: str | torch.device | None = None,
    timeout: float = TIMEOUT,
    **settings: Any,
) -> list[Trace]:
    """Train for real on several ranks, processes of this machine, and measure the memory that each takes.

    ``torchrun`` starts the processes, and PyTorch's default process group is there when ``train`` begins.

    Args:
        train: ``train(device, **settings)``, a generator that yields its loss once a step (a rank that has none:
            None), a function of a module: the ranks import its file.
        world_size: how many ranks.
        steps: how many steps to run, fewer if ``train`` ends earlier.
        device: ``"cpu"`` (the ranks talk by gloo) or ``"cuda"`` (a GPU each, NCCL); by default CUDA where there are
            enough GPUs.
        timeout: seconds without a word of a rank that has begun, after which the run is given up; each step is a word.
        **settings: passed on to ``train``: numbers, text and lists, as JSON has them.

    Returns:
        A trace a rank, in their order. Out of memory on one of them is a result, which ends the run: ranks that had
        not made a step are left out then.

    Raises:
        BadTrain: the ranks cannot import ``train``.
        BadValue: a world size that is none or that this machine cannot run; a setting that ``train`` does not have.
        RankFailed: a rank raised something, was killed, or fell silent; the others are ended.
    """
    run = ClusterRun(train, settings, world_size=world_size, steps=steps, device=device, timeout=timeout)
    with run:
        for _ in run:
            pass
    return run.traces()


class ClusterRun:
    """A run on several ranks, with the interface of :class:`memlab.run.Run`: iterate for steps, then call ``trace()``.

    Leaving the ``with`` block ends all processes. The arguments are those of :func:`measure`.

    Args:
        budget: of each rank, ``"2 GiB"`` or bytes.
        shown: the rank that ``trace()`` is of; None for the one with the highest peak.
        stopping: when it is set, the iteration ends.
        on_wait: called if the run has to wait for another one that is being measured.
    """

    def __init__(
        self,
        train: Train,
        settings: Mapping[str, Any],
        *,
        world_size: int = 2,
        steps: int = 3,
        device: str | torch.device | None = None,
        budget: str | int | None = None,
        shown: int | None = None,
        timeout: float = TIMEOUT,
        stopping: threading.Event | None = None,
        on_wait: Callable[[], None] | None = None,
    ):
        self.settings = Run(train, settings, Cpu(), steps=steps, budget=budget).settings  # says at once what is wrong
        self.world_size = check_world_size(world_size)
        self.steps: list[Step] = []  # of all ranks together: their mean loss, the slowest's seconds, the highest peak
        target = target_of(train)
        self._file = target.rpartition(":")[0]
        kind = "cuda" if backend(world_size, device) == "nccl" else "cpu"
        self._arguments = [target, _as_json(settings), f"--steps={steps}", f"--device={kind}"]
        if budget is not None:
            self._arguments.append(f"--budget={parse_bytes(budget)}")
        self._shown = shown
        self._timeout = _check_timeout(timeout)
        self._stopping = stopping or threading.Event()
        self._on_wait = on_wait
        self._ranks = [Rank() for _ in range(world_size)]

    def __enter__(self) -> "ClusterRun":
        with ExitStack() as undo:
            undo.enter_context(turn(self._stopping, self._on_wait))
            self._listener = Listener()
            undo.callback(self._listener.close)
            self._launch = Launch(self.world_size, self._arguments, self._listener.address)
            undo.callback(self._end)
            self._undo = undo.pop_all()
        for rank in self._ranks:
            rank.heard = time.monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        self._undo.close()

    def __iter__(self) -> Iterator[Step]:
        while not (self._stopping.is_set() or all(rank.ended for rank in self._ranks)):
            self._hear(LOOK)
            failed = any(rank.is_full for rank in self._ranks)
            made = [len(rank.steps) for rank in self._ranks]
            while len(self.steps) < (max(made) if failed else min(made)):  # others wait for the one that has failed
                index = len(self.steps)
                self.steps.append(_together([rank.steps[index] for rank in self._ranks if index < len(rank.steps)]))
                yield self.steps[-1]
            if failed:
                return
            self._check()
        self._wait(lambda: all(rank.gone for rank in self._ranks))

    def trace(self) -> Trace:
        """The trace of the rank where memory ran out, or else of the one that is shown. A step must have run."""
        return self._rank_on_show().whole_trace()

    def traces(self) -> list[Trace]:
        """A trace a rank, of those that have made a step."""
        return [rank.whole_trace() for rank in self._ranks if rank.trace]

    @property
    def steps_of_ranks(self) -> list[list[Step]]:
        """The steps that each rank has made so far."""
        return [rank.steps for rank in self._ranks]

    @property
    def variables(self) -> list[Any]:
        """None of those of ``train``: they are in other processes."""
        return []

    @property
    def xray_step(self) -> int:
        """Of the X-ray that ``trace()`` would show."""
        trace = self._rank_on_show().trace
        assert trace is not None
        return trace.xray_step

    def _rank_on_show(self) -> Rank:
        return self._ranks[max(range(self.world_size), key=self._precedence)]

    def _precedence(self, index: int) -> tuple[bool, bool, int]:
        rank = self._ranks[index]
        if rank.trace is None:
            return False, False, -1
        return rank.is_full, index == self._shown, rank.trace.peak_allocated

    def _end(self) -> None:
        self._launch.end([rank.pid for rank in self._ranks if rank.pid], idle=all(rank.gone for rank in self._ranks))

    def _hear(self, seconds: float) -> bool:
        """Take in one message, if one comes in time."""
        message = self._listener.next(seconds)
        if message is not None:
            self._ranks[message.rank].take(message)
        return message is not None

    def _wait(self, condition: Callable[[], bool], seconds: float = GRACE) -> None:
        """Go on listening until something is so, or so many seconds are over."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline and not self._stopping.is_set():
            self._hear(LOOK)

    def _check(self) -> None:
        """Raise if the run cannot come to its end any more."""
        if self._launch.is_over or any(rank.error or rank.died for rank in self._ranks):
            self._fail()
        if any(rank.silent(max(self._timeout, START if not rank.pid else 0)) for rank in self._ranks):
            self._fall_silent()

    def _fail(self) -> None:
        self._wait(self._has_died, LAST)
        if self._has_died():  # torchrun ends the other ranks, and then says which it saw end, and how
            self._wait(lambda: self._launch.is_over)
        if all(rank.ended for rank in self._ranks) or self._stopping.is_set():
            return
        self._end()
        errors = {index: rank.error for index, rank in enumerate(self._ranks) if rank.error}
        count = len(self.steps)
        when = f"after {count} step{'' if count == 1 else 's'}" if count else "before its first step had ended"
        raise faults.failure(errors, list(self._launch.printed), when)

    def _has_died(self) -> bool:
        return any(rank.died for rank in self._ranks)

    def _fall_silent(self) -> None:
        # Where one rank is stuck, the others wait for it: all of them are asked where they stand.
        silent = {index: rank for index, rank in enumerate(self._ranks) if rank.silent(self._timeout / 2)}
        for rank in silent.values():
            rank.ask()
        while self._hear(ANSWER):
            pass
        stacks = {index: rank.stack for index, rank in silent.items()}
        raise faults.silence(list(silent), stacks, self._timeout, self._file)


def _together(steps: list[Step]) -> Step:
    """One step of several ranks."""
    losses = [step.loss for step in steps if step.loss is not None]
    peaks = [step.peak_allocated for step in steps if step.peak_allocated is not None]
    return Step(
        loss=sum(losses) / len(losses) if losses else None,
        seconds=max((step.seconds for step in steps if step.seconds is not None), default=None),
        peak_allocated=max(peaks, default=None),
        xrayed=any(step.xrayed for step in steps),
    )


def _as_json(settings: Mapping[str, Any]) -> str:
    for name, value in settings.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise BadValue(
                f"{name}={value!r} cannot be sent to the ranks: give a number, text, a list or a dictionary of them."
            ) from None
    return json.dumps(dict(settings))


def _check_timeout(timeout: float) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise BadValue(f"timeout={timeout!r} is not a time: give seconds, more than 0.")
    return timeout
