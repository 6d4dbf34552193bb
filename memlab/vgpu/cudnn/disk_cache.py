"""The answers that cuDNN gave in other processes: a file in the user's cache, a line an answer."""

import json
import os
from contextlib import suppress
from pathlib import Path

from memlab.vgpu.cudnn.convolution import Convolution

MOST = 16 << 20  # bytes of the file; it is begun anew beyond that


class Remembered:
    """Answers of one version of cuDNN, for the next process.

    A line is written in one piece at the end of the file, so that several kernels can write; what cannot be read or
    written is asked again.
    """

    def __init__(self, version: int):
        self._file = folder() / f"cudnn-{version}.jsonl"
        self._known: dict[str, tuple[int, ...]] | None = None

    def find(self, capability: int, question: Convolution) -> tuple[int, ...] | None:
        """The answer, or None."""
        if self._known is None:
            self._known = self._read()
        return self._known.get(_key(capability, question))

    def add(self, capability: int, question: Convolution, answer: tuple[int, ...]) -> None:
        """Keep an answer, if that is possible."""
        line = f"\n{json.dumps([_key(capability, question), answer])}\n"
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    def _read(self) -> dict[str, tuple[int, ...]]:
        known: dict[str, tuple[int, ...]] = {}
        with suppress(OSError):
            if self._file.stat().st_size > MOST:
                self._file.unlink()
            for line in self._file.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError, TypeError):
                    key, answer = json.loads(line)
                    known[key] = tuple(map(int, answer))
        return known


def folder() -> Path:
    """``$XDG_CACHE_HOME/memlab``, or ``~/.cache/memlab``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memlab"


def _key(capability: int, question: Convolution) -> str:
    return json.dumps([capability, *question.to_json()])
