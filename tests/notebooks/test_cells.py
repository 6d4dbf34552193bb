import json

import pytest

from tests.notebooks import cells


def test_only_the_cells_that_are_needed_run():
    notebook = ["import math", "a = math.pi", "a = 1", "b = 2", "def f(b):\n    return a + b", "c = f(0)", "assert c"]
    wanted = ["assert c"]
    assert cells.needed(notebook, wanted) == ["a = 1", "def f(b):\n    return a + b", "c = f(0)", "assert c"]


def test_what_an_if_may_change_has_a_value_before():
    size = "size = 1\nlarge, little = 2, 3\nif size == 1:\n    large = 4"
    both = "if size:\n    large = 5\nelse:\n    large = 6"
    assert cells.needed([size, "large"], ["large"]) == [size, "large"]
    assert cells.needed(["large = 1", "size = 1", both, "large"], ["large"]) == ["size = 1", both, "large"]


def test_of_a_needed_cell_only_the_needed_statements_run():
    notebook = [
        "a = 1\nif a:\n    a += 1",
        "b = slow()\nsay(b)\nClaim('b', b)\nchallenge.check(b)\nc = a\n\n@cached\ndef f():\n    return later",
        "later = c\nd = b",
        "later",
    ]
    assert cells.needed([*notebook, "f()", "later = 3"], ["f()"]) == [
        "a = 1\nif a:\n    a += 1",
        "c = a\n@cached\ndef f():\n    return later",
        "later = c",
        "f()",
    ]


def test_a_loop_stays_for_what_it_does_to_others():
    notebook = ["models = [1]\nfor model in models:\n    model.train()", "models"]
    assert cells.needed(notebook, ["models"]) == notebook


def test_what_a_loop_counts_with_need_not_be_there_before():
    loop = "for run in runs:\n    total(run)"
    assert cells.needed(["run = slow()", "runs = 2 * [1]", loop], [loop]) == ["runs = 2 * [1]", loop]
    loop = "for run in [run]:\n    total(run)"
    assert cells.needed(["run = 1", loop], [loop]) == ["run = 1", loop]


def test_a_change_must_be_found_once():
    assert cells.changed(["x = 1", "y = 2"], "x = 1", "x = 3") == ["x = 3", "y = 2"]
    with pytest.raises(ValueError, match="stands 0 times"):
        cells.changed(["x = 1"], "z", "y")
    with pytest.raises(ValueError, match="stands 2 times"):
        cells.changed(["x = 1", "x = 1"], "x = 1", "y")


def test_cells_show_what_their_last_line_is():
    assert cells.run(["x = 1", "x + 1"])[1] == 2
    assert cells.run(["x = 1"])[1] is None


def test_a_section_may_go_on_in_the_depth(tmp_path):
    texts = [
        "# T",
        "## Same result?",
        "a",
        "## Other",
        "b",
        "## Going deeper: by hand. Same result?",
        "c",
        "## End",
        "d",
    ]
    found = [{"cell_type": "markdown" if text[0] == "#" else "code", "source": text} for text in texts]
    file = tmp_path / "01.ipynb"
    file.write_text(json.dumps({"cells": found}))
    assert cells.code_cells(file, "Same result?") == ["a", "c"]


def test_errors_and_what_goes_to_stderr_are_faults():
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["fine"]},
        {"output_type": "stream", "name": "stderr", "text": ["a warn", "ing"]},
        {"output_type": "error", "ename": "ValueError", "evalue": "mine", "traceback": ["a traceback"]},
    ]
    notebook = {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": outputs}]}
    assert list(cells.faults(notebook)) == ["a warning", "a traceback"]
