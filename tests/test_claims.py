"""The README's table of claims is what the saved notebooks say."""

import json

import pytest

from memlab import Claim
from tests.claims import BEGIN, END, ROOT, table, verdicts, written

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_the_readme_has_the_table_that_the_notebooks_give():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert written(readme, table(NOTEBOOKS)) == readme, "run python -m tests.claims"


@pytest.fixture
def notebook(tmp_path):
    def notebook(*markdown):
        outputs = [{"data": {"text/markdown": text}} for text in markdown]
        file = tmp_path / "99_a_notebook.ipynb"
        file.write_text(json.dumps({"cells": [{"outputs": outputs}, {"source": "no outputs"}]}))
        return file

    return notebook


@pytest.mark.parametrize("verdict", ["true", "true when", "false"])
def test_a_claim_is_found_as_it_shows_itself(notebook, verdict):
    file = notebook(Claim("It rains | a lot", verdict, "two\ndrops fell.")._repr_markdown_())
    (found,) = verdicts(file)
    assert (found.claim, found.verdict, found.evidence.lower()) == ("It rains | a lot", verdict, "two drops fell.")
    assert table([file]).splitlines()[2].startswith(f"| It rains \\| a lot | **{verdict}** | ")


def test_other_outputs_are_no_claims(notebook):
    assert list(verdicts(notebook("**True.** Not a claim.", "“A quotation” and more"))) == []


def test_every_claim_of_the_notebooks_is_found():
    for file in NOTEBOOKS:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        made = sum("".join(cell["source"]).count("Claim(") for cell in cells if cell["cell_type"] == "code")
        assert len(list(verdicts(file))) == made, file.name


def test_the_marks_stay():
    once = written(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new")
    assert written(once, "new") == once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
