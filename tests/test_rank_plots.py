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


ONE = [{0: ("forward", 0), 3: ("backward", 0)}, {1: ("forward", 0), 2: ("backward", 0)}]
TWO = [
    {0: ("forward", 0), 1: ("forward", 1), 4: ("backward", 0), 5: ("backward", 1)},
    {1: ("forward", 0), 2: ("forward", 1), 3: ("backward", 0), 4: ("backward", 1)},
]


def spans(axes, *, is_bubble):
    boxes = [
        path.get_extents()
        for bars in axes.collections
        for path in bars.get_paths()
        if bool(bars.get_hatch()) is is_bubble
    ]
    first = min(box.y0 for box in boxes)
    return sorted((box.x0, box.x1, round(box.y0 - first)) for box in boxes)


def test_a_pipeline_is_drawn_slot_by_slot_and_where_a_stage_waits_is_the_bubble():
    (axes,) = drawings.schedule({"One": ONE}, title="Two stages").axes
    assert spans(axes, is_bubble=False) == [(0, 1, 0), (1, 2, 1), (2, 3, 1), (3, 4, 0)]
    assert spans(axes, is_bubble=True) == [(0, 1, 1), (1, 3, 0), (3, 4, 1)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stage 0", "stage 1"]
    assert "One: the bubble is 50% of the time" in [text.get_text() for text in axes.texts]


def test_schedules_stand_below_each_other_with_what_each_stage_holds():
    (axes,) = drawings.schedule({"One": ONE, "Two": TWO}, title="").axes
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if text.startswith("holds")] == ["holds 1", "holds 1", "holds 2", "holds 2"]
    assert [text for text in texts if "the bubble is" in text] == [
        "One: the bubble is 50% of the time",
        "Two: the bubble is 33% of the time",
    ]
    assert len({round(tick, 3) for tick in axes.get_yticks()}) == 4


@pytest.mark.parametrize(
    "draw",
    [
        lambda: rank_plots.ranks({}, title=""),
        lambda: drawings.schedule({}, title=""),
        lambda: drawings.schedule({"none": []}, title=""),
    ],
)
def test_nothing_is_not_drawn(draw):
    with pytest.raises(BadValue, match="nothing to draw"):
        draw()
