"""A notebook's core is short, its lab comes early, and what one sees is the technique."""

import json

import pytest

from tests.notebooks.cells import NOTEBOOKS
from tests.notebooks.form import AT_LEAST, DEPTH, LEAST_CELLS, LIMITS, fold, form, share_of_reporting


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_read_and_tried_in_half_an_hour(notebook):
    it = form(json.loads(notebook.read_text(encoding="utf-8")))
    bounds = [(name, name in AT_LEAST, limit) for name, limit in vars(LIMITS).items()]
    wrong = [
        f"{name} is {getattr(it, name)}, at {'least' if is_least else 'most'} {limit}"
        for name, is_least, limit in [*bounds, ("core_cells", True, LEAST_CELLS)]
        if (getattr(it, name) < limit if is_least else getattr(it, name) > limit)
    ]
    assert wrong == [], f"what goes further stands below {DEPTH}"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_depth_is_folded(notebook):
    text = notebook.read_text(encoding="utf-8")
    assert DEPTH in text
    assert fold(json.loads(text)) == json.loads(text)


def cell(kind, text, number=0):
    return {"cell_type": kind, "source": text, "id": f"c{number}", "metadata": {}}


def test_the_figures_of_a_notebook():
    cells = [
        cell("markdown", "# Title\n\nfour words here now"),
        cell("code", "from memlab import Lab"),
        cell("code", "lab = Lab(train)\nlab"),
        cell("markdown", "## Going deeper: more", 3),
        cell("code", "x = " + "1 + " * 30 + "1\n" * 20, 4),
    ]
    it = form({"cells": cells, "metadata": {}})
    assert (it.cells_before_lab, it.core_cells, it.longest_cell) == (2, 3, 2)
    assert it.longest_line == 125
    assert (it.core_words, it.core_lines, it.claims_without_source) == (5, 3, 0)
    assert not it.has_bill


def test_what_a_reader_sees_and_where_claims_come_from():
    code = "drawings.bill('00')\ndrawings.parts(trace)"
    cells = [
        cell("markdown", "# Title\n\n<details>four words are folded</details>"),
        cell("code", code) | {"metadata": {"jupyter": {"source_hidden": True}}},
        cell("markdown", "## In your code\n\n| in | write |\n|---|---|\n| PyTorch | `a()` |\n| DeepSpeed | `b` |"),
        cell("markdown", "## Going deeper: more", 3),
        cell("code", "Claim('x', 'true', 'y')\nClaim('x', 'true', 'y', source='z')", 4),
    ]
    it = form({"cells": cells, "metadata": {}})
    assert (it.has_bill, it.drawings, it.tools, it.core_lines, it.claims_without_source) == (True, 1, 2, 0, 1)
    assert it.core_words == 10


@pytest.mark.parametrize(
    ("source", "share"),
    [
        ("import torch\n# a comment\nx = 1\n\nsay(\n    'the prose {x}',\n    x=x,\n)", 3 / 4),
        ("x = 1\ntitle = f'{x} runs'", 1 / 2),
        ("for x in (1, 2):\n    y = x\n    print(y)", 1 / 3),
        ("Claim(\n    'text',\n    verdict(cases),\n    f'evidence {x}',\n)", 0),
        ("plots.bars(runs)", 0),
    ],
)
def test_what_counts_as_reporting(source, share):
    assert share_of_reporting([source]) == pytest.approx(share)


def test_folding_is_written_for_every_front_end():
    cells = [cell("markdown", "# Title"), cell("markdown", "## Going deeper: more", 1), cell("code", "1", 2)]
    folded = fold({"cells": cells, "metadata": {}})
    assert folded["cells"][1]["metadata"] == {"jp-MarkdownHeadingCollapsed": True, "id": "c1"}
    assert folded["metadata"]["colab"] == {"collapsed_sections": ["c1"]}
    assert folded["cells"][0]["metadata"] == {}


def test_a_heading_of_the_depth_begins_a_cell():
    cells = [cell("markdown", "## Take away\n\nIt saves.\n\n## Going deeper: more\n\nIt costs.", 1)]
    take_away, more = fold({"cells": cells, "metadata": {}})["cells"]
    assert ("".join(take_away["source"]), take_away["metadata"]) == ("## Take away\n\nIt saves.", {})
    assert "".join(more["source"]) == "## Going deeper: more\n\nIt costs."
    assert more["metadata"] == {"jp-MarkdownHeadingCollapsed": True, "id": more["id"]}
