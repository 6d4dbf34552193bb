"""``python -m tests.notebooks.same_result NOTEBOOK``: does its "Same result?" pass, and fail for each break?"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.notebooks.branches import branches
from tests.notebooks.cells import changes, code_cells, needed, notebook_named, run
from tests.notebooks.repeats import spared


def outcome(cells: Sequence[str], space: dict[str, Any] | None = None) -> str:
    """``"passes"``, or the error that the cells raise."""
    try:
        run(cells, space)
    except Exception as error:  # a broken technique may raise anything; only AssertionError is a finding
        return f"{type(error).__name__}: {error}"
    return "passes"


@spared()
def outcomes(notebook: Path) -> dict[str, str]:
    """Return the outcome of *Same result?* as it is, and after each break; savings are no part of its results."""
    wanted = [cell for cell in code_cells(notebook, "Same result?") if "Saving(" not in cell]
    section = needed(code_cells(notebook), wanted)
    return branches(section, changes(notebook, "break"), outcome, unchanged="as it is")


if __name__ == "__main__":
    print(json.dumps(outcomes(notebook_named(sys.argv[1])), indent=1))
