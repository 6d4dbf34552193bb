"""The process in which cuDNN is asked, seen from outside.

cuDNN is a library of half a gigabyte that is used here in a way that few use it. Whatever happens in it (a crash, a
hang, a missing part), the reader's own process goes on: the question is asked once more in a new process, and then no
more.
"""

import json
import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from memlab.vgpu.cudnn.convolution import Convolution

PATIENCE = 60.0  # seconds for an answer; the first one loads the library
FAILURES = 2  # of the process, until nothing more is asked
MOST = 500  # answers of one process: of tens of thousands from one, some were wrong, and the cause was not found


class Client:
    """Asks one cuDNN, in a process that starts with the first question and ends with this one.

    Args:
        command: of the process; it reads a question a line and writes an answer a line.
        patience: seconds that an answer may take.
    """

    def __init__(self, command: list[str], *, patience: float = PATIENCE):
        self._command = command
        self._patience = patience
        self._failures = 0
        self._answers = 0  # of the process at work
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._parents: subprocess.Popen[bytes] | None = None  # in a process that was forked
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def ask(self, capability: int, question: Convolution) -> tuple[int, ...] | None:
        """The workspaces of the plans that ATen would try, falling, in bytes.

        None where cuDNN does not take the question, or cannot be asked (then ``has_failed``).
        """
        line = json.dumps([capability, question.to_json()]) + "\n"
        with self._lock:
            while self._failures < FAILURES:
                try:
                    answer = json.loads(self._exchange(line.encode()))
                    self._count()
                    return None if answer is None else tuple(answer)
                except (OSError, ValueError):
                    self._failures += 1
                    self._end()
                except BaseException:  # Ctrl-C: an answer that nobody read must not be taken for the next one
                    self._end()
                    raise
        return None

    @property
    def has_failed(self) -> bool:
        """True if asking cuDNN failed so often that it is not asked again."""
        return self._failures >= FAILURES

    def _exchange(self, line: bytes) -> bytes:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], self._patience)
            part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                raise OSError("cuDNN's process has hung or ended")
            answer += part
        return answer

    def _count(self) -> None:
        self._answers += 1
        if self._answers == MOST:
            self._end()

    def _start(self) -> "subprocess.Popen[bytes]":
        # A session of its own: Ctrl-C is for the reader's loop.
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(self._command, **pipes, env=_environment(), start_new_session=True)

    def _end(self) -> None:
        self._answers = 0
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _forget(self) -> None:
        """In a process that was forked: the pipes are its parent's."""
        self._lock = threading.Lock()
        self._parents, self._process = self._process, None

    def __del__(self) -> None:
        self._end()


class ByCapability:
    """Asks the cuDNN in a file, with a process for each compute capability.

    A precaution: cuDNN may keep something from one card to another.
    """

    def __init__(self, library: Path):
        self._command = [sys.executable, "-m", "memlab.vgpu.cudnn", str(library)]
        self._clients: dict[int, Client] = {}

    def ask(self, capability: int, question: Convolution) -> tuple[int, ...] | None:
        """As :meth:`Client.ask`."""
        if capability not in self._clients:
            self._clients[capability] = Client(self._command)
        return self._clients[capability].ask(capability, question)


def _environment() -> dict[str, str]:
    """This process's, with the memlab that it has imported; without a card, which is not needed."""
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
