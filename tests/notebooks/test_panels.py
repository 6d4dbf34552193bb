"""Every panel holds at both ends of its controls, stopped and interrupted, its cells run twice."""

import pytest

from tests.notebooks.apart import apart
from tests.notebooks.cells import NOTEBOOKS
from tests.notebooks.panels import faults

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_broken_or_left_behind(notebook):
    assert apart(faults, notebook) == []
