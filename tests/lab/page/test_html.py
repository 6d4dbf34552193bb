from dataclasses import replace

import pytest

from memlab.lab.page import Axis, Grid, fragment, page
from memlab.lab.page.html import packed, unpacked


@pytest.fixture
def grid():
    axes = (Axis("batch_size", "batch size", "slider", (1, 8), 1), Axis("gpu", "predict for", "menu", ("T4",)))
    return Grid("Start <here>", "GPT-2 small", axes, ("<svg>a</svg>", "<svg>b</svg>"), ("first & one", "second"))


def test_what_is_packed_comes_out(grid):
    data = unpacked(packed(grid))
    assert data["pictures"] == list(grid.pictures)
    assert data["sentences"] == list(grid.sentences)
    assert data["axes"][0] == {
        "name": "batch_size",
        "label": "batch size",
        "kind": "slider",
        "values": ["1", "8"],
        "start": 1,
    }


def test_curves_are_packed_without_what_they_share(grid):
    curve = " ".join(f"{number}.5,{{y}}" for number in range(200))
    pictures = tuple(f'<svg><polygon points="{curve.format(y=y)}"/></svg>' for y in range(100))
    many = replace(grid, pictures=pictures)
    assert unpacked(packed(many))["pictures"] == list(pictures)
    assert len(packed(many)) < 5_000


def test_without_a_script_the_picture_that_it_begins_with_is_shown(grid):
    text = fragment(grid, with_script=False)
    assert "<script" not in text
    assert "<svg>b</svg><p>second</p>" in text


def test_a_page_is_one_file_and_escapes_what_it_is_given(grid):
    text = page(grid)
    assert "<title>Start &lt;here&gt;</title>" in text
    assert "<here>" not in text
    for outside in ("http://", "https://", "src="):
        assert outside not in text


def test_two_panels_of_a_page_have_their_own_addresses(grid):
    assert 'id="lab-start--here-"' in fragment(grid)
