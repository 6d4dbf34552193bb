"""A panel that does not say what was predicted is found, and so is one that does not answer."""

import os

import pytest

from memlab import Lab
from memlab.lab.page import choose_axes, page, predict_grid
from memlab.lab.page.grid import MODEL
from memlab.lab.page.html import packed, unpacked
from tests.browser.jupyter import find_chromium
from tests.lab.loops import train
from tests.site.grids import CARDS
from tests.site.points import POINTS, differing
from tests.site.used import unusable

browser = pytest.mark.skipif(not find_chromium() and not os.environ.get("CI"), reason="there is no Chromium to drive")


@pytest.fixture(scope="module")
def session():
    return Lab(train, batch_size=(1, 64), models={"wide": {"width": 64}}).session


@pytest.fixture(scope="module")
def grid(session):
    return predict_grid(session, choose_axes(session, CARDS, most=30, named=[(MODEL, "wide")]))


def test_points_are_compared_with_predictions(session, grid):
    shown = unpacked(packed(grid))
    assert list(differing(session, grid.axes, shown)) == []
    for what, said in (("shown", "the page draws other "), ("sentences", "the page says ")):
        other = shown | {what: shown[what][1:] + shown[what][:1]}
        found = list(differing(session, grid.axes, other))
        assert len(found) == POINTS
        assert all(said in line for line in found)


def test_what_of_a_step_differs_is_named(session, grid):
    shown = unpacked(packed(grid))
    for step in shown["shown"]:
        step["trace"]["flops"] += 1
    assert all(line.endswith(": the page draws other flops") for line in differing(session, grid.axes, shown))


@browser
@pytest.mark.parametrize(
    ("before", "after", "faults"),
    [
        ("", "", []),
        ("put(input.value); changed();", "put(input.value);", ["the slider's end says"] * 2 + ["its address says"] * 2),
        ("<h1>", '<h1 style="width: 500px">', ["390 pixels: the page is 5"]),
    ],
)
def test_a_panel_is_tried_from_the_keyboard_and_by_touch(grid, tmp_path, before, after, faults):
    file = tmp_path / "lab.html"
    file.write_text(page(grid).replace(before, after) if before else page(grid), encoding="utf-8")
    found = list(unusable([file]))
    assert len(found) == len(faults)
    assert all(any(fault in line for line in found) for fault in faults)
