"""The logbook: every run of a learner, a line each, in one file.

A line is written in one piece and at the end of the file, so several kernels can write to it, and what a crash leaves
half written costs that line alone.
"""

import errno
import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from memlab.errors import NotRead, NotWritten
from memlab.trace import Trace

VARIABLE = "MEMLAB_LOGBOOK"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run: bytes, floating-point operations of a step, the loss of the last step (None for a prediction)."""

    time: str
    title: str
    source: str
    device: str
    settings: dict[str, Any]
    peak_allocated: int
    flops: int
    loss: float | None
    out_of_memory: bool


def logbook_file() -> Path:
    """Where the logbook is: the file that MEMLAB_LOGBOOK names, else ``~/.memlab/logbook.jsonl``.

    Raises:
        NotWritten: there is no home folder either.
    """
    try:
        return Path(os.environ.get(VARIABLE) or Path.home() / ".memlab" / "logbook.jsonl")
    except RuntimeError as error:
        raise NotWritten(f"There is no home folder for the logbook ({error}): set {VARIABLE} to a file.") from None


def append(title: str, trace: Trace) -> None:
    """Add a run.

    Raises:
        NotWritten: the file cannot be written; the run itself is not touched by that.
    """
    losses = [loss for loss in trace.losses if loss is not None]
    entry = Entry(
        time=datetime.now().isoformat(timespec="seconds"),
        title=title,
        source=trace.source,
        device=trace.device,
        settings=dict(trace.settings),
        peak_allocated=trace.peak_allocated,
        flops=trace.flops,
        loss=losses[-1] if losses else None,
        out_of_memory=trace.oom is not None,
    )
    file = logbook_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A line before too: what a crash cut off must not swallow this one.
        _write_at_the_end(file, f"\n{json.dumps(asdict(entry))}\n".encode())
    except OSError as error:
        raise NotWritten(
            f"The logbook {file} cannot be written ({error.strerror}): set {VARIABLE} to a file that can."
        ) from None


def read() -> tuple[list[Entry], int]:
    """All entries, the oldest first, and how many lines are none: of a crash, or of another program.

    Raises:
        NotRead: the file cannot be read.
    """
    file = logbook_file()
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise NotRead(f"The logbook {file} cannot be read ({error.strerror}): set {VARIABLE} to a file.") from None
    entries = [_entry(line) for line in lines if line.strip()]
    return [entry for entry in entries if entry is not None], entries.count(None)


def _write_at_the_end(file: Path, line: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        written = os.write(descriptor, line)  # one call: the system puts it whole behind what is there
        if written < len(line):  # as much as the disk had room for
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _entry(line: str) -> Entry | None:
    try:
        entry = Entry(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    return entry if all(isinstance(getattr(entry, name), kinds) for name, kinds in _KINDS.items()) else None


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("time", "title", "source", "device"), str),
    **dict.fromkeys(("peak_allocated", "flops"), int),
    "settings": dict,
    "loss": (int, float, type(None)),
    "out_of_memory": bool,
}
