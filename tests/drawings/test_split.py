"""The peak, divided into the model, its blocks and the loss."""

import pytest

from memlab import drawings, predict
from memlab.drawings.split import BLOCKS, LOSS, MODEL, split_of
from tests.drawings.loop import train


@pytest.fixture(scope="module")
def plain():
    return predict(train)


def test_the_pieces_are_the_peak(plain):
    pieces = split_of(plain)
    assert sum(pieces.values()) == plain.peak_allocated
    weights = max(plain.timeline["parameter"])
    assert pieces[MODEL] == pytest.approx(3 * weights, rel=0.01)  # and two numbers of AdamW's


def test_half_the_depth_leaves_the_loss_as_it_is(plain):
    shallow, half = split_of(predict(train, depth=1)), split_of(predict(train, batch_size=2))
    assert shallow[LOSS] == pytest.approx(split_of(plain)[LOSS], rel=0.1)
    assert shallow[BLOCKS] < 0.6 * split_of(plain)[BLOCKS]
    assert half[LOSS] < 0.6 * split_of(plain)[LOSS]


def test_a_bar_for_each_run(plain):
    picture = drawings.split({"as it is": plain}, title="a title")
    assert picture.sentence == "a title"
    (axes,) = picture.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["as it is"]
    assert picture.png().startswith(b"\x89PNG")
