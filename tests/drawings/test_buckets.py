"""Of DDP's buckets the last one is sent when backward is over, and the drawing says so."""

import pytest

from memlab import drawings
from memlab.errors import BadValue
from memlab.palette import LIMIT


def test_the_last_bucket_is_sent_when_backward_is_over():
    picture = drawings.buckets([(4, 9 << 20), (16, 27 << 20), (20, 168 << 20)], title="the last one waits")
    (axes,) = picture.axes
    bars = [(bar.get_x() / 2**20, bar.get_width() / 2**20) for bar in axes.patches[:3]]
    assert bars == [(0, 9), (9, 27), (36, 168)]
    written = {text.get_text(): text.get_color() for text in axes.texts}
    assert {"9.00 MiB sent", "27.0 MiB sent"} <= set(written)
    assert [text for text, color in written.items() if color == LIMIT] == ["168 MiB sent, backward is over"]
    assert picture.sentence == "the last one waits"
    assert picture.png().startswith(b"\x89PNG")


def test_no_bucket_is_no_drawing():
    with pytest.raises(BadValue):
        drawings.buckets([], title="nothing")
