"""``python -m tests.notebooks.challenge NOTEBOOK``: what its check says of the stub, the solution and each cheat."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from IPython.display import Markdown

from tests.notebooks.branches import branches
from tests.notebooks.cells import changes, code_cells, needed, notebook_named, run
from tests.notebooks.repeats import spared


def said(cells: Sequence[str], space: dict[str, Any] | None = None) -> str:
    """Return the output of the last cell, as plain text."""
    _, shown = run(cells, space)
    return (shown.data if isinstance(shown, Markdown) else str(shown)).replace("**", "")


@spared()
def verdicts(notebook: Path) -> dict[str, str]:
    """Return the verdicts on the stub, on the solution if there is one, and on the solution after each cheat."""
    section = code_cells(notebook, "Challenge")
    found = {"stub": said(needed(code_cells(notebook), section))}
    cells = code_cells(notebook.parent / "solutions" / notebook.name)
    found["solution"] = said(cells)
    return found | branches(needed(cells, cells[-1:]), changes(notebook, "cheat"), said)


if __name__ == "__main__":
    print(json.dumps(verdicts(notebook_named(sys.argv[1])), indent=1))
