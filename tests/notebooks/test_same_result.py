"""Every notebook's "Same result?" passes, and fails when its technique is broken on purpose."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.notebooks import cells

ROOT = Path(__file__).parents[2]
COMPARING = [
    path for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")) if cells.code_cells(path, "Same result?")
]


@pytest.mark.parametrize("notebook", [pytest.param(path, id=path.stem) for path in COMPARING])
def test_the_same_result_is_shown_and_a_broken_technique_is_not_let_through(notebook):
    # A process of its own: what a cell sets in torch stays there.
    command = [sys.executable, "-m", "tests.notebooks.cells", str(notebook)]
    environment = os.environ | {"MEMLAB_SIZE": "ci", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("as it is") == "passes"
    assert len(found) >= 3
    let_through = {why: what for why, what in found.items() if not what.startswith("AssertionError")}
    assert let_through == {}


def test_only_the_cells_that_are_needed_run():
    notebook = ["import math", "a = math.pi", "a = 1", "b = 2", "def f(b):\n    return a + b", "c = f(0)", "assert c"]
    wanted = ["assert c"]
    assert cells.needed(notebook, wanted) == ["a = 1", "def f(b):\n    return a + b", "c = f(0)", "assert c"]


def test_a_break_must_be_found_once():
    assert cells.broken(["x = 1", "y = 2"], "x = 1", "x = 3") == ["x = 3", "y = 2"]
    with pytest.raises(ValueError, match="stands 0 times"):
        cells.broken(["x = 1"], "z", "y")
    with pytest.raises(ValueError, match="stands 2 times"):
        cells.broken(["x = 1", "x = 1"], "x = 1", "y")


def test_what_cells_raise_is_told():
    assert cells.outcome(["x = 1", "assert x == 1"]) == "passes"
    assert cells.outcome(["assert False, 'no'"]) == "AssertionError: no"
    assert cells.outcome(["x"]) == "NameError: name 'x' is not defined"
