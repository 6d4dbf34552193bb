"""The bill is what its loop takes, and the notebook's own line is marked."""

import io
import json
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from memlab.drawings.bill import Rung, bill, record
from memlab.drawings.ladder import ladder
from memlab.palette import CATEGORY_COLORS
from memlab.trace import Category
from memlab.units import format_bytes
from tests.notebooks.bill import FILE
from tests.notebooks.bill import bill as recomputed


@pytest.mark.slow
def test_the_record_is_what_the_loop_takes():
    assert json.loads(FILE.read_text(encoding="utf-8")) == recomputed()


def test_each_line_saves():
    peaks = [rung.peak for rung in record().rungs]
    assert all(later < 1.001 * earlier for earlier, later in pairwise(peaks))
    assert peaks[0] > record().room > peaks[2]


@pytest.mark.parametrize(
    ("notebook", "words"),
    [
        ("00", "for one step"),
        ("01", "this notebook's line takes nothing off its 19.7 GiB"),
        ("06", "this notebook takes 8.54 GiB down to 6.11 GiB"),
        ("20", "step by step"),
    ],
)
def test_the_title_is_about_the_notebook(notebook, words):
    assert words in bill(notebook).sentence


def test_the_line_of_the_notebook_is_bold_and_later_ones_are_pale():
    (axes,) = bill("06").axes
    weights = {label.get_text(): label.get_fontweight() for label in axes.get_yticklabels()}
    assert [text for text, weight in weights.items() if weight == "bold"] == ["06  every block checkpointed"]
    marked, paler, last = (widest(axes, row).get_facecolor()[3] for row in (4, 5, 7))
    assert marked > paler == last


def widest(axes, row):
    bars = (bar for bar in axes.patches if round(bar.get_y() + bar.get_height() / 2) == row)
    return max(bars, key=lambda bar: bar.get_width())


def test_a_peak_is_the_sum_of_its_parts():
    assert format_bytes(Rung("00", "plain", {"parameter": 1024, "gradient": 1024}, 1.0, 2.0).peak) == "2.00 KiB"


def test_a_line_that_is_to_be_guessed_is_not_drawn():
    (axes,) = bill("19", until="13b").axes
    assert axes.get_yticklabels()[-1].get_text() == "13b  the loss in chunks"
    assert "878" not in bill("19", until="13b").sentence


def test_the_ladder_has_the_bytes_and_the_seconds_of_every_line():
    takes, lasts = ladder("all of it").axes
    rungs = record().rungs
    assert sum(bar.get_width() for bar in takes.patches) == sum(rung.peak for rung in rungs)
    seconds = [rung.likely_seconds for rung in rungs] + [rung.least_seconds for rung in rungs]
    assert [bar.get_width() for bar in lasts.patches] == seconds
    assert any(text.get_text().endswith("23 times less") for text in takes.texts)
    assert [label.get_text() for label in takes.get_yticklabels()] == [rung.name for rung in rungs]


@pytest.mark.parametrize("notebook", ["01", "02", "06"])
def test_the_legend_has_the_color_of_gradients_where_no_vivid_bar_has_it(notebook):
    drawn = np.asarray(Image.open(io.BytesIO(bill(notebook).png())).convert("RGB")).astype(int)
    wanted = 255 * (0.85 * np.array(to_rgb(CATEGORY_COLORS[Category.GRADIENT])) + 0.15)
    assert (np.abs(drawn - wanted).max(axis=2) < 8).sum() > 50  # pixels: a patch of the legend
