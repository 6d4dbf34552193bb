"""Every challenge refuses the stub that a notebook comes with, accepts the solution, and refuses cheats."""

import pytest

from tests.notebooks.apart import apart
from tests.notebooks.cells import NOTEBOOKS, code_cells
from tests.notebooks.challenge import verdicts

pytestmark = pytest.mark.slow

POSED = "challenge = Challenge("


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_stub_and_cheats_are_refused_and_the_solution_passes(notebook):
    found = apart(verdicts, notebook)
    passed = [what for what, said in found.items() if said.startswith("Passed.")]
    refused = [what for what, said in found.items() if said.startswith("Not yet.")]
    assert passed == ["solution"]
    assert refused == [what for what in found if what != "solution"]
    assert len(refused) >= 4


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_solution_solves_the_challenge_of_the_notebook(notebook):
    def posed(path):
        return [line for cell in code_cells(path) for line in cell.splitlines() if line.startswith(POSED)]

    assert posed(notebook.parent / "solutions" / notebook.name) == posed(notebook)
