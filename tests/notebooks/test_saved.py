"""Saved notebooks show their pictures wherever notebooks are shown."""

import base64
import json
import re

import pytest

from memlab import plots, predict
from memlab.lab.export import still
from memlab.lab.guess import MIME
from memlab.lab.screen import View
from tests.golden.traces import PREDICTED
from tests.lab.loops import train
from tests.notebooks.cells import NOTEBOOKS
from tests.notebooks.saved import PANEL, parts

# What GitHub and nbconvert show; of HTML they leave out what is not on this list, pictures at GitHub too.
SHOWN = {"image/png", "text/html", "text/latex", "text/markdown", "text/plain"}
FOR_PAGES = {MIME}  # what a reader of notebooks leaves alone
SHOWN_ELEMENTS = {"p", "b", "div", "pre", "span", "style"}
# A picture that is folded until a guess has its sentence below, for those who leave it out.
FOLDED = re.compile(r'<details><summary>[^<]*</summary>\s*<img alt="([^"]+)" src="data:[^"]*"><p>\1</p>\s*</details>')


def shown(**data):
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def test_a_picture_becomes_a_png_with_its_text():
    picture = plots.timeline(predict(train, steps=1))
    (kept,) = parts(shown(**picture._repr_mimebundle_()))
    assert base64.b64decode(kept["data"]["image/png"]).startswith(b"\x89PNG")
    assert kept["data"]["text/plain"] == [picture.sentence]
    assert kept["metadata"] == {"image/png": {"alt": picture.sentence}}
    assert "text/html" not in kept["data"]


def test_a_panel_becomes_its_picture_and_its_words():
    markup = still(View(PREDICTED, ("batch_size",)), PREDICTED.sentence)
    before, picture, after = parts(shown(**{"text/html": [markup], "text/plain": "A Lab", PANEL: {"model_id": "1"}}))
    assert base64.b64decode(picture["data"]["image/png"]).startswith(b"\x89PNG")
    words = before["data"]["text/html"] + after["data"]["text/html"]
    assert "".join(words) == re.sub("<img[^>]*>", "", markup)
    assert before.keys() == after.keys() == picture.keys() == {"data", "metadata", "output_type"}


def test_a_panel_without_a_picture_leaves_what_else_it_has():
    assert parts(shown(**{"text/markdown": "a", PANEL: {}})) == [shown(**{"text/markdown": "a"})]


def test_what_has_no_picture_stays():
    guess = {"text/markdown": "Guess first.", MIME: {"question": "?", "actual": 1}}
    fold = shown(**{"text/html": '<details><img alt="a" src="data:image/png;base64,AA=="></details>'})
    for output in (shown(**{"text/html": "<p>b</p>"}), fold, shown(**guess), {"output_type": "stream", "text": "a"}):
        assert parts(json.loads(json.dumps(output))) == [output]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_all_that_is_saved_is_shown_by_whoever_shows_notebooks(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    data = [output["data"] for cell in cells for output in cell.get("outputs", []) if "data" in output]
    markup = FOLDED.sub("", "".join("".join(one.get("text/html", "")) for one in data))
    assert {kind for one in data for kind in one} <= SHOWN | FOR_PAGES, "python -m tests.notebooks.saved"
    assert set(re.findall(r"<(\w+)", markup)) <= SHOWN_ELEMENTS, "python -m tests.notebooks.saved"
