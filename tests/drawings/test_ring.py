"""Whose keys and values each rank has in each step, and how much it computes with them."""

import pytest

from memlab import drawings
from memlab.errors import BadValue

ONE_BY_ONE = [[0.5, 0.0], [0.5, 1.0]]


def test_a_block_moves_to_the_next_rank_in_each_step():
    (axes,) = drawings.ring({"in order": ONE_BY_ONE}, title="a title").axes
    written = [text.get_text() for text in axes.texts]
    assert written[:6] == ["0", "1", "0.50", "1", "0", "1.50"]


def test_a_cell_is_filled_as_far_as_its_part():
    (axes,) = drawings.ring({"in order": ONE_BY_ONE}, title="").axes
    filled = [patch.get_width() / 0.9 for patch in axes.patches[1::2]]
    assert filled == pytest.approx([0.5, 0.0, 0.5, 1.0])


def test_a_panel_for_each_way():
    picture = drawings.ring({"in order": ONE_BY_ONE, "from both ends": ONE_BY_ONE}, title="a title")
    (axes,) = picture.axes
    assert {"in order", "from both ends"} < {text.get_text() for text in axes.texts}
    assert len(axes.patches) == 2 * 2 * 4
    assert picture.sentence == "a title"
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.parametrize("work", [{}, {"not square": [[0.5], [0.5, 1.0]]}, {"too much": [[1.5]]}, {"less": [[-0.1]]}])
def test_what_cannot_be_drawn(work):
    with pytest.raises(BadValue):
        drawings.ring(work, title="")
