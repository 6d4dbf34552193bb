"""Saved notebooks show their pictures wherever notebooks are shown."""

import base64
import json

import pytest

from memlab import plots, predict
from tests.lab.loops import train
from tests.notebooks.cells import NOTEBOOKS
from tests.notebooks.saved import IMG, as_png


def test_a_picture_becomes_a_png_with_its_text():
    picture = plots.timeline(predict(train, steps=1))
    shown = {"data": picture._repr_mimebundle_(), "metadata": {}, "output_type": "display_data"}
    kept = as_png(shown)
    assert base64.b64decode(kept["data"]["image/png"]).startswith(b"\x89PNG")
    assert kept["data"]["text/plain"] == [picture.sentence]
    assert kept["metadata"] == {"image/png": {"alt": picture.sentence}}
    assert "text/html" not in kept["data"]


def test_what_is_no_picture_alone_stays():
    shown = {"data": {"text/html": "<img alt='a'><p>b</p>"}, "metadata": {}}
    assert as_png(shown) == {"data": {"text/html": "<img alt='a'><p>b</p>"}, "metadata": {}}
    assert as_png({"output_type": "stream", "text": "a"}) == {"output_type": "stream", "text": "a"}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_pictures_are_saved_as_pngs(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    markup = ["".join(o.get("data", {}).get("text/html", "")) for cell in cells for o in cell.get("outputs", [])]
    assert not any(map(IMG.fullmatch, markup)), "python -m tests.notebooks.saved"
