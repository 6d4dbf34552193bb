"""The logbook: every run of a learner, a line each, in one file.

A line is written in one piece and at the end of the file, so several kernels can write to it, and what a crash leaves
half written costs that line alone.
"""

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from memlab.errors import NotRead, NotWritten
from memlab.files import append_line
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
    """Return the path of the logbook: the file that MEMLAB_LOGBOOK names, else ``~/.memlab/logbook.jsonl``.

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
        append_line(file, json.dumps(asdict(entry)))
    except NotWritten as error:
        reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else str(error)
        raise NotWritten(
            f"The logbook {file} cannot be written ({reason}): set {VARIABLE} to a file that can."
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
