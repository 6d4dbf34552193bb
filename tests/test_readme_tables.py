"""The tables of notebooks/README.md, and the front page's counts, are what the saved notebooks show."""

import json
import re
from pathlib import Path

import pytest
import torch

from memlab import Claim, Guess, Saving, measure, predict
from memlab.lab.claim import VERDICTS
from tests.notebooks.cells import NOTEBOOKS, ROOT
from tests.readme import PAGES, TABLES, answers, claims, number, questions, savings, table, with_counts, written


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_has_what_the_notebooks_give(path):
    page = path.read_text(encoding="utf-8")
    assert PAGES[path](page, NOTEBOOKS) == page, "run python -m tests.readme"


@pytest.fixture
def notebook(tmp_path):
    def notebook(*markdown, title=""):
        outputs = [{"data": {"text/markdown": text}} for text in markdown]
        file = tmp_path / "99_a_notebook.ipynb"
        file.write_text(json.dumps({"cells": [{"source": title}, {"source": "", "outputs": outputs}]}))
        return file

    return notebook


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("votes", [True, False], ids=["asks for a vote", "as older notebooks show it"])
def test_a_claim_is_found_as_it_shows_itself(notebook, verdict, votes):
    shown = Claim("It rains | a lot", verdict, "two\ndrops fell.")._repr_markdown_()
    file = notebook(shown if votes else re.sub(r"<details>.*</summary>\n\n|\n\n</details>", "", shown))
    (found,) = claims(file)
    assert (*found[:2], found[2].lower(), found[3]) == ("It rains | a lot", f"**{verdict}**", "two drops fell.", "`99`")
    assert table(claims, [file]).splitlines()[2].startswith(f"| It rains \\| a lot | **{verdict}** | ")


def test_the_source_of_a_claim_stands_in_the_table(notebook):
    (found,) = claims(notebook(Claim("It rains", "false", "no.", source="https://a.b")._repr_markdown_()))
    assert found[2] == "No. ([source](https://a.b))"


def train(device, *, rows):
    model = torch.nn.Linear(512, 512, device=device)
    while True:
        loss = model(torch.zeros(rows, 512, device=device)).sum()
        loss.backward()
        model.zero_grad()
        yield loss


def test_a_saving_is_found_as_it_shows_itself(notebook):
    pairs = [(run(train, rows=100_000), run(train, rows=1)) for run in (measure, predict)]
    file = notebook(Saving("fewer rows", measured=pairs[0], predicted=pairs[1])._repr_markdown_())
    ((technique, measured, predicted, where),) = savings(file)
    assert (technique, where) == ("fewer rows", "`99`")
    assert measured.endswith("% saved")
    assert predicted.endswith(", T4")


def test_the_question_is_found_below_the_title(notebook):
    assert list(questions(notebook(title="# A title\n\n**Why?**\n\nText."))) == [("`99_a_notebook`", "Why?")]


def test_a_notebook_has_the_number_that_its_name_begins_with():
    assert number(Path("13b_fused_loss.ipynb")) == "`13b`"


def test_other_outputs_are_in_no_table(notebook):
    file = notebook("**True.** Not a claim.", "“A quotation” and more", "| a | table |\n|---|---|\n| of | others |")
    assert list(claims(file)) == list(savings(file)) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_claim_and_saving_of_a_notebook_is_found(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert len(list(claims(notebook))) == code.count("Claim(") > 0
    assert len(list(savings(notebook))) == code.count("Saving(") > 0
    ((_, question),) = questions(notebook)
    assert question.endswith("?")


def test_claims_are_counted(notebook):
    file = notebook(
        *(
            Claim(f"claim {n}", verdict, "evidence.")._repr_markdown_()
            for n, verdict in enumerate(("true", "false", "false"))
        )
    )
    page = "| <!-- counted -->old<!-- end of counted --> |"
    assert "of 3 claims 1 hold, 0 hold under a condition, 2 do not<" in with_counts(page, [file])


def test_a_claim_that_is_not_proven_is_counted(notebook):
    file = notebook(*(Claim("a", verdict, "b.")._repr_markdown_() for verdict in ("true", "not proven", "not proven")))
    counted = with_counts("<!-- counted -->old<!-- end of counted -->", [file])
    assert "of 3 claims 1 hold, 0 hold under a condition, 0 do not, 2 are not proven<" in counted


def test_what_stands_around_the_marks_stays():
    once = written("before\n<!-- claims -->\nold\n<!-- end of claims -->\nafter\n", "claims", "new")
    assert once == "before\n<!-- claims -->\n\nnew\n\n<!-- end of claims -->\nafter\n"
    assert written(once, "claims", "new") == once


def test_each_table_has_its_place():
    pages = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert all(pages.count(f"<!-- {rows.__name__} -->") == 1 for rows in TABLES)


def test_the_answer_of_a_guess_is_found_as_it_shows_itself(notebook):
    file = notebook()
    asked = [
        Guess("How high?").reveal(2**30)._repr_mimebundle_(),
        Guess("Where?", choices=["here", "there"]).reveal("there")._repr_mimebundle_(),
    ]
    cells = [{"source": "", "outputs": [{"data": data}]} for data in asked]
    file.write_text(json.dumps({"cells": cells}))
    assert list(answers(file)) == [("`99`", "How high?", "1.00 GiB"), ("`99`", "Where?", "there")]
