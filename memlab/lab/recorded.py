"""Runs of a panel, and figures, that were recorded on another machine, for readers who lack its GPU."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memlab.errors import NotATrace
from memlab.files import write_atomically
from memlab.shipped import shipped_folder
from memlab.trace import Trace


def folder() -> Path:
    """Return where they are, beside the notebooks; a run is a file, as :meth:`memlab.Trace.to_json` writes it."""
    return shipped_folder() / "recorded"


def figures(name: str) -> Any:
    """Return the content of a JSON file there, such as ``"deepspeed.json"``."""
    return json.loads((folder() / name).read_text(encoding="utf-8"))


def keep(title: str, traces: Sequence[Trace], where: Path) -> None:
    """Write runs of the panel with this title into a folder; they take the place of earlier ones of their device.

    Raises:
        NotWritten: they cannot be written.
    """
    for number, trace in enumerate(traces):
        write_atomically(where / f"{_slug(title)}--{_slug(trace.device)}-{number}.json", trace.to_json())


def runs(title: str, refuse: Callable[[NotATrace], None]) -> list[Trace]:
    """All recorded runs of the panel with this title; a file that cannot be read is refused, and left out."""
    found = []
    for file in sorted(folder().glob(f"{_slug(title)}--*.json")):
        try:
            found.append(Trace.from_json(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            refuse(NotATrace(f"The recorded run {file.name} is left out: {error}"))
    return found


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
