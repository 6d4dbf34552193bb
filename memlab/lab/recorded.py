"""Runs of a panel that were recorded on another machine, beside the notebooks, for readers who lack its GPU."""

import re
from collections.abc import Sequence
from pathlib import Path

from memlab.files import write_atomically
from memlab.shipped import shipped_folder
from memlab.trace import Trace


def folder() -> Path:
    """Where they are: a file each, as :meth:`memlab.Trace.to_json` writes it."""
    return shipped_folder() / "recorded"


def keep(title: str, traces: Sequence[Trace], where: Path) -> None:
    """Write runs of the panel with this title into a folder; they take the place of earlier ones of their device.

    Raises:
        NotWritten: they cannot be written.
    """
    for number, trace in enumerate(traces):
        write_atomically(where / f"{_slug(title)}--{_slug(trace.device)}-{number}.json", trace.to_json())


def runs(title: str) -> list[Trace]:
    """All recorded runs of the panel with this title.

    Raises:
        NotATrace: a file there holds something else.
    """
    files = sorted(folder().glob(f"{_slug(title)}--*.json"))
    return [Trace.from_json(file.read_text(encoding="utf-8")) for file in files]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
