"""Figures of several ranks: what they say is what the runs took."""

import pytest
from matplotlib.colors import to_rgba

from memlab import drawings, rank_plots
from memlab.errors import BadValue
from memlab.palette import GREY
from tests.golden.traces import PREDICTED


def test_each_rank_has_its_peak_and_what_it_sends_beside_it():
    run = PREDICTED
    picture = rank_plots.ranks({"rank 0": run, "rank 1": run}, title="Two ranks")
    takes, sends = picture.axes
    assert sum(bar.get_height() for bar in takes.patches) == 2 * run.peak_allocated
    assert [bar.get_height() for bar in sends.patches] == [run.sent, run.sent]
    assert {bar.get_facecolor() for bar in sends.patches} == {to_rgba(GREY)}
    assert picture._repr_mimebundle_()["text/plain"] == "Two ranks"


def test_a_pipeline_is_drawn_slot_by_slot():
    stages = [{0: ("forward", 0), 3: ("backward", 0)}, {1: ("forward", 0), 2: ("backward", 0)}]
    (axes,) = drawings.schedule(stages, title="Two stages").axes
    spans = [box.get_extents() for bars in axes.collections for box in bars.get_paths()]
    assert sorted((span.x0, span.x1, round(span.y0 + 0.4)) for span in spans) == [
        (0, 1, 0),
        (1, 2, 1),
        (2, 3, 1),
        (3, 4, 0),
    ]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stage 0", "stage 1"]


@pytest.mark.parametrize("draw", [lambda: rank_plots.ranks({}, title=""), lambda: drawings.schedule([], title="")])
def test_nothing_is_not_drawn(draw):
    with pytest.raises(BadValue, match="nothing to draw"):
        draw()
