"""``torchrun`` as a process: started in a session of its own, heard, and ended with all that it started."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from memlab.cluster.lines import ADDRESS
from memlab.cluster.size import threads
from memlab.forked import ADDRESS as NURSERY

KEPT_LINES = 200  # of what torchrun and the ranks print
SECONDS_TO_END = 3.0


class Launch:
    """``python -m memlab.cluster.torchrun RANKS LOGS ...``, see there; forked where that can be done.

    Args:
        ranks: how many.
        arguments: of the worker.
        address: where its ranks shall tell what they do.
    """

    def __init__(self, ranks: int, arguments: Sequence[str], address: str):
        # torchrun may be killed before it has removed the folder of its logs.
        self._logs = tempfile.TemporaryDirectory(prefix="memlab-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [sys.executable, *_modules(), str(ranks), self._logs.name, *arguments],
            env=_environment(ranks, address),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self.printed: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader = threading.Thread(target=self._read, name="memlab torchrun", daemon=True)
        self._reader.start()

    @property
    def is_over(self) -> bool:
        """True once torchrun has ended."""
        return self._process.poll() is not None

    def end(self, ranks: Sequence[int], *, idle: bool) -> None:
        """End torchrun and its ranks and everything that they started.

        Args:
            ranks: the process ids of those that are known.
            idle: all of them have ended, so that torchrun has nothing left to do.
        """
        if not (idle or self.is_over):
            self._process.terminate()  # it ends its ranks first
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_END)
        for leader in (self._process.pid, *ranks):  # each has a session, and so a group, of its own
            _kill_group(leader)
        self._process.wait()
        self._reader.join(SECONDS_TO_END)
        self._logs.cleanup()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.printed.extend(lines)


def _modules() -> list[str]:
    return ["-m", *(["memlab.forked"] if NURSERY in os.environ else []), "memlab.cluster.torchrun"]


def _kill_group(leader: int) -> None:
    if hasattr(os, "killpg"):  # not on Windows, where torchrun has done what can be done
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def _environment(ranks: int, address: str) -> dict[str, str]:
    own = Path(__file__).parents[2]  # the ranks run this memlab, wherever this process found it
    path = os.pathsep.join(filter(None, [str(own), os.environ.get("PYTHONPATH")]))
    # Without OMP_NUM_THREADS torchrun sets it to 1, and says so.
    own_threads = {"OMP_NUM_THREADS": str(threads(ranks)), "OMP_WAIT_POLICY": "passive"}
    return {**own_threads, **os.environ, "PYTHONPATH": path, ADDRESS: address}
