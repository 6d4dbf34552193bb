"""One thread that trains and predicts, so that the panel stays alive."""

import atexit
import ctypes
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

from memlab.cluster.size import cores
from memlab.errors import Stopped

REST = 0.3  # seconds without a job after which the thread does what nobody waits for, or ends
PATIENCE = 3.0  # seconds that a prediction may still take while a newer one waits
GRACE = 3.0  # seconds after which a job that was asked to end is broken off


class Stopping(threading.Event):
    """Asks a job to end, now or in some seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._deadline = math.inf
        self._heard = -math.inf  # when the job was told that it should end
        self._thread: int | None = None  # that can be broken off
        self._lock = threading.Lock()

    def set(self) -> None:
        """Ask it to end now."""
        self.within(0.0)
        super().set()

    def within(self, seconds: float) -> None:
        """Ask it to end when so many seconds are over, or earlier, if that was asked before."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def no_hurry(self) -> None:
        """Let it take its time after all."""
        self._deadline = math.inf

    @property
    def is_asked(self) -> bool:
        """True if the job should end, for callers other than the job: that they have asked is not recorded."""
        return super().is_set() or time.monotonic() > self._deadline

    def is_set(self) -> bool:
        """Return True if the job should end. The job itself asks this way, and when it first heard so is kept."""
        asked = self.is_asked
        if asked and self._heard < 0:
            self._heard = time.monotonic()
        return asked

    @property
    def is_late(self) -> bool:
        """True if :data:`GRACE` seconds have passed since the end that was asked for, and since the job knew of it."""
        return self.is_asked and time.monotonic() >= max(self._deadline, self._heard) + GRACE

    @contextmanager
    def breakable(self) -> Iterator[None]:
        """A context that :meth:`break_off` ends with :class:`memlab.errors.Stopped`."""
        with self._lock:
            self._thread = threading.get_ident()
        try:
            yield
        finally:
            with self._lock:
                self._thread = None

    def break_off(self) -> None:
        """Raise ``Stopped`` in the thread that is within :meth:`breakable`, at its next line of Python."""
        with self._lock:
            if self._thread is not None and self.is_late:
                thread, error = ctypes.c_ulong(self._thread), ctypes.py_object(Stopped)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)


Work = Callable[[Stopping], Any]
_all: "weakref.WeakSet[Worker]" = weakref.WeakSet()
_of_all = threading.Lock()


def _nothing() -> None:
    """Do nothing: the callback of a job whose caller gave none."""


def is_crowded() -> bool:
    """Return True if, in the last minute, more processes wanted to compute on this machine than it has cores."""
    try:
        return os.getloadavg()[0] > cores()
    except (AttributeError, OSError):  # Windows; nobody knows
        return False


class Job(Future[Any]):
    """Work that is waiting, going on or over; ``stopping`` asks it to end.

    Args:
        work: ``work(stopping)``, which should return soon after ``stopping`` is set.
        name: of a prediction: what it predicts. None for a run.
        is_idle: whether nobody waits for it.

    Attributes:
        on_stuck: called when it cannot be broken off, as where it waits outside of Python.
    """

    def __init__(self, work: Work, name: Hashable = None, *, is_idle: bool = False):
        super().__init__()
        self.stopping = Stopping()
        self.name = name
        self.is_idle = is_idle
        self._work: Work | None = work
        self._insisting: threading.Thread | None = None
        self.on_stuck: Callable[[], None] = _nothing

    def execute(self) -> None:
        """Do the work; its result or its exception is kept for whoever asks."""
        work, self._work = self._work, None  # it leads to the panel, which the job may outlive
        assert work is not None
        try:
            self.set_result(work(self.stopping))
        except BaseException as error:  # kept, and raised again by result()
            self.set_exception(error)
        finally:
            self.on_stuck = _nothing

    def give_up(self) -> None:
        """End it before it has begun."""
        self._work = None
        self.set_result(None)

    def insist(self) -> None:
        """Break it off once it is late; not earlier, for within PyTorch's C++ that may abort the process."""
        if self._insisting is None:
            self._insisting = threading.Thread(target=self._insist, name="memlab lab, stopping", daemon=True)
            self._insisting.start()

    def _insist(self) -> None:
        late = 0
        while not wait([self], GRACE).done:
            late += self.stopping.is_late
            if late == 2:
                self.on_stuck()
            self.stopping.break_off()  # again and again: a bare except may catch it


class Worker:
    """Does one job at a time, in a thread that ends when there has been nothing to do for a moment.

    Args:
        at_rest: asked for work that nobody waits for, with its name; any job ends it. None: there is no more. On a
            crowded machine, where others do wait, it waits too.
        on_stuck: called when a job cannot be broken off.
    """

    def __init__(
        self,
        at_rest: Callable[[], tuple[Work, Hashable] | None] = lambda: None,
        on_stuck: Callable[[], None] = _nothing,
    ):
        self._at_rest = at_rest
        self._on_stuck = on_stuck
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._latest: Job | None = None
        self._thread: threading.Thread | None = None
        self._at_once = False  # ask what there is to be done at rest
        self._is_over = False
        with _of_all:
            _all.add(self)

    def submit(self, work: Work, name: Hashable = None, *, patient: bool = False) -> Job:
        """Queue ``work(stopping)``. Never blocks.

        A run stops all that is going on or waiting. A prediction, which has a ``name``, takes the place of one that
        waits and gives one that is going on some seconds to end, if somebody waits for that or if it is ``patient``;
        if that has the same name, it is given back.
        """
        for other in self._others():
            other.hush()
        with self._changed:
            if name is None:
                self._end_all()
            elif going_on := self._make_way(name, patient):
                return going_on
            self._latest = Job(work, name)
            self._waiting.append(self._latest)
            self._wake()
            return self._latest

    def stop(self) -> bool:
        """Ask all jobs to end; False if none is waiting or going on that somebody waits for."""
        with self._changed:
            wanted = [job for job in self._jobs() if not job.is_idle]
            self._end_all()
            return bool(wanted)

    def drop(self) -> None:
        """Forget the prediction that waits, and end work that nobody waits for: what comes next is known."""
        with self._changed:
            self._drop_waiting()
        self.hush()

    def is_waiting(self, name: Hashable) -> bool:
        """Return True if a prediction of that name has yet to begin."""
        with self._changed:
            return any(job.name == name for job in self._waiting)

    @property
    def works(self) -> bool:
        """True if work is queued, or the current job is one that somebody waits for."""
        current = self._current
        return bool(self._waiting) or (current is not None and not current.is_idle)

    def rest(self, *, at_once: bool = False) -> None:
        """Let the thread ask ``at_rest`` for work, after a pause or ``at_once``."""
        with self._changed:
            self._at_once = at_once
            self._wake()

    def hush(self) -> None:
        """End work that nobody waits for."""
        with self._changed:
            if self._current is not None and self._current.is_idle:
                self._end(self._current)

    def end(self, seconds: float) -> None:
        """Begin nothing any more, ask what is going on to end, and wait so long for the thread.

        At Python's end: since 3.12 no thread can be started then.
        """
        with self._changed:
            self._is_over = True
            while self._waiting:
                self._waiting.pop().give_up()
            if self._current is not None:
                self._current.stopping.set()
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _others(self) -> list["Worker"]:
        with _of_all:
            return [worker for worker in _all if worker is not self]

    # With the lock held

    def _jobs(self) -> list[Job]:
        return [job for job in (self._current, *self._waiting) if job is not None and not job.done()]

    def _end_all(self) -> None:
        for job in self._jobs():
            self._end(job)

    def _end(self, job: Job, seconds: float = 0.0) -> None:
        """Ask a job to end in so many seconds, and break it off if it does not."""
        if seconds:
            job.stopping.within(seconds)
        else:
            job.stopping.set()
        if job is self._current:
            job.insist()

    def _make_way(self, name: Hashable, patient: bool) -> Job | None:
        """For a prediction: the job that predicts the same, or None when what is going on has been asked to end."""
        self._drop_waiting()
        job = self._current
        if job is None or job.name is None or job.stopping.is_asked:
            return None
        if job.name != name:
            self._end(job, 0.0 if job.is_idle and not patient else PATIENCE)
            return None
        job.is_idle = False
        job.stopping.no_hurry()
        self._latest = job
        return job

    def _drop_waiting(self) -> None:
        while self._waiting and self._waiting[-1].name is not None:
            self._waiting.pop().give_up()

    def _wake(self) -> None:
        if self._thread is None and not self._is_over:
            # A daemon, so that a kernel can be shut down in the middle of a run.
            self._thread = threading.Thread(target=self._work, name="memlab lab", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    # In the thread

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.execute()
            if job.stopping.is_set():
                return self._hand_over()
            del job

    def _hand_over(self) -> None:
        """Let another thread go on: what ends in the middle may leave this one with, say, gradients switched off."""
        with self._changed:
            self._current = self._thread = None
            self._wake()

    def _next(self) -> Job | None:
        """The next job; None when the thread is to end."""
        crowded = True
        while crowded:
            with self._changed:
                self._current = None
                self._changed.wait_for(lambda: self._waiting or self._at_once, REST)
                at_once, self._at_once = self._at_once, False
                if self._waiting:
                    return self._begin(self._waiting.popleft())
            # Without the lock: whoever answers may have one of its own.
            rest = None if any(other.works for other in self._others()) else self._at_rest()
            crowded = rest is not None and not at_once and is_crowded()
        with self._changed:
            if self._waiting:
                return self._begin(self._waiting.popleft())
            if rest is not None and not self._is_over:
                return self._begin(Job(*rest, is_idle=True))
            self._thread = None
            return None

    def _begin(self, job: Job) -> Job:
        self._current = job
        job.on_stuck = self._on_stuck
        return job


@atexit.register
def _end_workers() -> None:
    """Python ends its threads wherever they are, and where that is within PyTorch's C++ the process is aborted."""
    with _of_all:
        workers = list(_all)
    deadline = time.monotonic() + GRACE
    for worker in workers:
        worker.end(max(0.0, deadline - time.monotonic()))
