import os
import time
from pathlib import Path

import pytest

from tests.notebooks.branches import branches
from tests.notebooks.challenge import said
from tests.notebooks.same_result import outcome

COUNT = "from pathlib import Path\ncount = Path('count')\nwith count.open('a') as file:\n    file.write('.')\nx = 1"
CELLS = [COUNT, "y = [x + 1]", "y.append(x)\nz = sum(y)", "z"]


def case(replace, by):
    return {"why": f"{replace} -> {by}", "replace": replace, "with": by}


def test_a_change_runs_on_with_what_the_cells_before_it_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = [case("sum(y)", "max(y)"), case("x = 1", "x = 5"), case("[x + 1]", "[7]")]
    assert list(branches(CELLS, cases, said).items()) == [
        ("sum(y) -> max(y)", "2"),
        ("x = 1 -> x = 5", "11"),
        ("[x + 1] -> [7]", "8"),
    ]
    assert Path("count").read_text() == ".."  # as it is, and as it is changed


def test_what_comes_of_the_cells_as_they_are():
    cells = ["x = 1", "x"]
    assert branches(cells, [case("1", "2")], said, unchanged="as they are") == {"as they are": "1", "1 -> 2": "2"}


def test_no_change_sees_another_and_the_rest_of_what_is_not_changed_does_not_run():
    cells = ["made = []", "made.append(1)", "made", "raise SystemError"]
    cases = [case("append(1)", "extend([1, 2])"), case("append(1)", "append(3)")]
    told = branches(cells, cases, lambda cells, space: outcome(cells[:1], space) + str(space["made"]))
    assert list(told.values()) == ["passes[1, 2]", "passes[3]"]


def test_a_process_that_ends_without_telling_is_an_error():
    with pytest.raises(EOFError):
        branches(["x = 1"], [case("1", "2")], lambda cells, space: os._exit(1))


def test_a_process_that_stands_still_is_ended(monkeypatch):
    monkeypatch.setattr("tests.notebooks.branches.PATIENCE", 0.2)
    with pytest.raises(TimeoutError, match=r"the changed cells said nothing in 0\.2 s"):
        branches(["x = 1"], [case("1", "2")], lambda cells, space: str(time.sleep(60)))
