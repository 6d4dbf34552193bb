"""The judgement of notebooks on the stand-in; `make test-cuda` runs them."""

import tomllib

from tests.cuda.notebooks import NUMBERS, Failure, expected, judged
from tests.notebooks.cells import NOTEBOOKS, code_cells

LOSS = Failure("assert loss < 1", "AssertionError", "", "")
ALLOWED = {"notebook": "x", "cell": "assert loss", "why": "the loss is 0"}


def test_only_what_may_fail_may_fail():
    assert judged([LOSS], [ALLOWED]) == []
    (wrong,) = judged([LOSS], [])
    assert wrong.startswith("AssertionError: \nassert loss < 1")
    (wrong,) = judged([Failure("assert loss < 1", "OutOfMemoryError", "", "")], [ALLOWED])
    assert wrong.startswith("OutOfMemoryError")


def test_what_may_fail_must_fail():
    assert judged([], [ALLOWED]) == ["numbers.toml lets 'assert loss' fail, and it did not"]
    assert judged([], [ALLOWED | {"sometimes": True}]) == []


def test_the_list_names_one_cell_each_and_says_why():
    entries = tomllib.loads(NUMBERS.read_text())["fails"]
    assert {entry["notebook"] for entry in entries} <= {notebook.stem for notebook in NOTEBOOKS}
    for notebook in NOTEBOOKS:
        for entry in expected(notebook):
            assert sum(entry["cell"] in cell for cell in code_cells(notebook)) == 1, entry["cell"]
            assert entry["why"]
