"""Every notebook at size ``gpu``, from its first cell to its last, on a card that is not there.

Numbers are zeros there, so cells that judge numbers fail; ``numbers.toml`` says which, and why. Any other cell that
fails is a defect of the CUDA path. ``python -m tests.cuda.notebooks CARD [NOTEBOOK ...]``
"""

import os
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

from tests.notebooks.cells import NOTEBOOKS
from tests.standin.__main__ import environment

NUMBERS = Path(__file__).with_name("numbers.toml")
SECONDS = 900  # that one cell may take
JUDGING = ("AssertionError", "ZeroDivisionError")  # what cells that judge numbers end in


@dataclass(frozen=True)
class Failure:
    """A cell that ended in an error.

    Attributes:
        source: the cell.
        error: the error's type.
        message: what it says.
        traceback: its lines.
    """

    source: str
    error: str
    message: str
    traceback: str


def failures(notebook: Path, card: str) -> list[Failure]:
    """Run all the cells of a notebook on a card, whatever becomes of single ones; those that failed."""
    content = nbformat.read(notebook, as_version=4)
    place = {"metadata": {"path": str(notebook.parent)}}
    client = NotebookClient(content, timeout=SECONDS, kernel_name="python3", allow_errors=True, resources=place)
    with tempfile.TemporaryDirectory() as folder:  # these runs are no learner's
        told = {"MEMLAB_SIZE": "gpu", "OMP_NUM_THREADS": "1", "MEMLAB_LOGBOOK": f"{folder}/logbook.jsonl"}
        client.execute(env=environment(card, os.environ) | told)
    return list(_failed(content.cells))


def _failed(cells: Iterable[nbformat.NotebookNode]) -> Iterator[Failure]:
    for cell in cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                yield Failure(cell.source, output.ename, output.evalue, "\n".join(output.traceback))


def expected(notebook: Path) -> list[dict[str, Any]]:
    """The cells of a notebook that fail where nothing is computed, as ``numbers.toml`` has them."""
    return [entry for entry in tomllib.loads(NUMBERS.read_text())["fails"] if entry["notebook"] == notebook.stem]


def judged(found: list[Failure], allowed: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with a notebook: failures that are not allowed, and allowed ones that did not happen."""
    wrong = []
    for failure in found:
        if failure.error not in JUDGING or not any(entry["cell"] in failure.source for entry in allowed):
            wrong.append(f"{failure.error}: {failure.message}\n{failure.source}\n{failure.traceback}")
    for entry in allowed:
        if not (entry.get("sometimes") or any(entry["cell"] in failure.source for failure in found)):
            wrong.append(f"numbers.toml lets {entry['cell']!r} fail, and it did not")
    return wrong


def check(notebook: Path, card: str) -> list[str]:
    """Return what is wrong with a notebook on a card, and print how long it took."""
    begun = time.monotonic()
    try:
        found = failures(notebook, card)
    except (CellTimeoutError, DeadKernelError) as error:
        return [f"{notebook.stem} on {card}: {error}"]
    wrong = judged(found, expected(notebook))
    seconds = time.monotonic() - begun
    print(f"{notebook.stem} on {card}: {seconds:.0f} s, {len(found)} cells failed, {len(wrong)} wrongly")
    return wrong


def main(card: str, names: list[str]) -> int:
    """The number of notebooks with which something is wrong, each told."""
    count = 0
    for notebook in NOTEBOOKS:
        if not names or any(notebook.stem.startswith(name) for name in names):
            wrong = check(notebook, card)
            count += bool(wrong)
            print("\n".join(wrong), flush=True)
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
