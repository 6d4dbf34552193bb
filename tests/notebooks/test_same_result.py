"""Every notebook asserts that its technique changes no result, and notices when the technique is broken."""

import pytest

from tests.notebooks.apart import apart
from tests.notebooks.cells import NOTEBOOKS
from tests.notebooks.same_result import outcome, outcomes

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_result_is_the_same_and_a_broken_technique_is_not_let_through(notebook):
    found = apart(outcomes, notebook)
    assert found.pop("as it is") == "passes"
    assert len(found) >= 3
    let_through = {why: what for why, what in found.items() if not what.startswith("AssertionError")}
    assert let_through == {}


def test_what_cells_raise_is_told():
    assert outcome(["x = 1", "assert x == 1"]) == "passes"
    assert outcome(["assert False, 'no'"]) == "AssertionError: no"
    assert outcome(["x"]) == "NameError: name 'x' is not defined"
