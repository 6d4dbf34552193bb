"""Figures of memory beside time: what they say is what the runs took."""

from itertools import combinations

import pytest

from memlab import time_plots
from memlab.errors import BadValue
from memlab.time_plots import Cost

PLAIN = Cost(3000, {"parameter": 1000, "activation": 2000}, least_seconds=0.002, likely_seconds=0.003)
LEAN = Cost(1500, {"parameter": 1000, "activation": 500}, least_seconds=0.001, likely_seconds=0.004)


def test_a_waterfall_has_bytes_and_seconds_of_every_run():
    picture = time_plots.waterfall({"plain": PLAIN, "lean": LEAN}, title="Half of it")
    takes, lasts = picture.axes
    assert sum(bar.get_width() for bar in takes.patches) == PLAIN.peak + LEAN.peak
    assert [bar.get_width() for bar in lasts.patches] == [0.003, 0.004, 0.002, 0.001]
    assert [label.get_text() for label in takes.get_yticklabels()] == ["plain", "lean"]
    assert any("2 times less" in note.get_text() for note in takes.texts)
    assert picture._repr_mimebundle_()["text/plain"] == "Half of it"


def test_a_point_of_the_front_is_clearly_faster_than_all_leaner_ones():
    points = [(4, 1.0), (2, 3.0), (3, 3.0), (1, 5.0), (4, 2.0), (5, 0.97)]
    assert time_plots.front(points) == [(1, 5.0), (2, 3.0), (4, 1.0)]


def test_all_points_are_drawn_and_the_front_numbered():
    points = [(2**30, 0.1), (2**31, 0.05), (2**31, 0.2)]
    (axes,) = time_plots.pareto(points, title="Two of three").axes
    every, best = axes.lines
    assert list(zip(*every.get_data(), strict=True)) == points
    assert list(zip(*best.get_data(), strict=True)) == points[:2]
    assert [note.get_text() for note in axes.texts if note.get_text().isdigit()] == ["1", "2"]


def test_the_numbers_of_near_points_do_not_collide():
    points = [
        (2 * 2**30, 0.050),
        (int(2.04 * 2**30), 0.047),
        (5 * 2**30, 0.040),
        (int(5.001 * 2**30), 0.0375),
        (2**32, 0.5),
    ]
    picture = time_plots.pareto(points, title="Four of five")
    picture.draw_without_rendering()
    boxes = [note.get_window_extent() for note in picture.axes[0].texts if note.get_text().isdigit()]
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize("draw", [lambda: time_plots.waterfall({}, title=""), lambda: time_plots.pareto([], title="")])
def test_nothing_is_not_drawn(draw):
    with pytest.raises(BadValue, match="nothing to draw"):
        draw()
