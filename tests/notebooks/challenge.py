"""``python -m tests.notebooks.challenge NOTEBOOK``: what its check says of the stub, the solution and each cheat."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from IPython.display import Markdown

from tests.notebooks.cells import changed, changes, code_cells, needed, run
from tests.notebooks.repeats import spared


def said(cells: Sequence[str]) -> str:
    """What the last cell shows, as plain text."""
    _, shown = run(cells)
    return (shown.data if isinstance(shown, Markdown) else str(shown)).replace("**", "")


@spared()
def verdicts(notebook: Path) -> dict[str, str]:
    """What is said of the stub, of the solution if there is one, and of the solution after each cheat."""
    section = code_cells(notebook, "Challenge")
    found = {"stub": said(needed(code_cells(notebook), section))}
    cells = code_cells(notebook.parent / "solutions" / notebook.name)
    found["solution"] = said(cells)
    answer = needed(cells, cells[-1:])
    for case in changes(notebook, "cheat"):
        found[case["why"]] = said(changed(answer, case["replace"], case["with"]))
    return found


if __name__ == "__main__":
    print(json.dumps(verdicts(Path(sys.argv[1])), indent=1))
