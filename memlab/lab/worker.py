"""One thread that trains, so that the panel stays alive."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Job(Future[Any]):
    """A run that is waiting, going on or over; ``stopping`` asks it to end after the step it is in."""

    def __init__(self, work: Callable[[threading.Event], Any]):
        super().__init__()
        self.stopping = threading.Event()
        self._work = work

    def execute(self) -> None:
        """Do the work; its result or its exception is kept for whoever asks."""
        try:
            self.set_result(self._work(self.stopping))
        except BaseException as error:  # kept, and raised again by result()
            self.set_exception(error)


class Worker:
    """Does one job at a time; a new one stops the one before and waits for its end."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._latest: Job | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[threading.Event], Any]) -> Job:
        """Queue ``work(stopping)``, which should return soon after ``stopping`` is set. Never blocks."""
        self.stop()
        self._latest = Job(work)
        self._jobs.put(self._latest)
        if self._thread is None:
            # A daemon, so that a kernel can be shut down in the middle of a run.
            self._thread = threading.Thread(target=self._work, name="memlab lab", daemon=True)
            self._thread.start()
        return self._latest

    def stop(self) -> bool:
        """Ask the newest job to end; False if none is waiting or going on."""
        if self._latest is None or self._latest.done():
            return False
        self._latest.stopping.set()
        return True

    def _work(self) -> None:
        while True:
            self._jobs.get().execute()
