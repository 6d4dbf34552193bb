"""Matplotlib figures of memory beside time: runs that add one technique after the other, and all combinations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from memlab.palette import BLUE, GREY, INK, QUIET_INK
from memlab.plots import ABOVE, SMALL, Picture, check_some, draw_legend, pile, write_title
from memlab.units import byte_ticks, format_bytes, format_seconds

ROW = 0.36  # inches
TEXT: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL, "color": INK}


@dataclass(frozen=True)
class Cost:
    """What a picture shows of a predicted run.

    Attributes:
        peak: bytes allocated at most.
        by_category: bytes at the peak.
        least_seconds: of a step, by the roofline.
        likely_seconds: of a step, estimated.
    """

    peak: int
    by_category: Mapping[str, int]
    least_seconds: float
    likely_seconds: float


def waterfall(runs: Mapping[str, Cost], *, title: str, note: str = "") -> Picture:
    """Runs below each other: what each one's peak is made of, and beside it the time of a step, least and likely.

    Args:
        runs: predictions, by the name to write on the left.
        title: the sentence that says the same.
        note: where the runs come from.

    Raises:
        BadValue: when there is nothing to draw.
    """
    check_some(runs)
    picture = Picture(title, height=1.5 + ROW * len(runs))
    takes, lasts = picture.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    _draw_bytes(takes, list(runs.values()))
    _draw_seconds(lasts, list(runs.values()))
    takes.set_yticks(range(len(runs)), list(runs))
    takes.set_ylim(len(runs) - 0.4, -0.6)
    lasts.annotate(
        "a step: at least, and probably", (0, 1), (0, 5), **ABOVE, fontsize=SMALL, color=QUIET_INK, va="bottom"
    )
    for axes in (takes, lasts):
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    write_title(takes, title, note)
    draw_legend(picture)
    return picture


def pareto(points: Sequence[tuple[int, float]], *, title: str, note: str = "") -> Picture:
    """Peak against time, a point each, on scales of powers; those of :func:`front` are joined and numbered.

    Args:
        points: bytes and seconds.
        title: the sentence that says the same.
        note: where the points come from.

    Raises:
        BadValue: when there is nothing to draw.
    """
    check_some(points)
    picture = Picture(title, height=3.8)
    axes = picture.add_subplot(xscale="log", yscale="log")
    best = front(points)
    axes.plot(*zip(*points, strict=True), "o", color=GREY, markersize=4, label="a combination")
    axes.plot(*zip(*best, strict=True), "o-", color=BLUE, label="worth having")
    for number, point in enumerate(best, 1):  # in turn above and below, or the numbers of near points collide
        place = (5, 5) if number % 2 else (-10, -12)
        axes.annotate(str(number), point, place, textcoords="offset points", fontsize=SMALL, color=INK)
    _powers(axes, [point[0] for point in points], [point[1] for point in points])
    axes.set_xlabel("peak allocated", color=QUIET_INK)
    axes.set_ylabel("a step", color=QUIET_INK)
    axes.spines[["top", "right"]].set_visible(False)
    write_title(axes, title, note)
    draw_legend(picture)
    return picture


def front(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The points worth having, by bytes: each is at least a twentieth faster than all that take less."""
    found: list[tuple[int, float]] = []
    for point in sorted(points):
        if not found or point[1] < 0.95 * found[-1][1]:
            found.append(point)
    return found


def _draw_bytes(axes: Any, runs: Sequence[Cost]) -> None:
    left = pile(partial(axes.barh, range(len(runs))), [run.by_category for run in runs])
    for row, peak in enumerate(left):
        times = "" if row == 0 else f", {left[0] / peak:.3g} times less"
        axes.annotate(f"{format_bytes(peak)}{times}", (peak, row), (4, 0), **TEXT)
    ticks = byte_ticks(max(left))
    axes.set_xticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(0, max(left) * 1.35)


def _draw_seconds(axes: Any, runs: Sequence[Cost]) -> None:
    likely, least = [run.likely_seconds for run in runs], [run.least_seconds for run in runs]
    axes.barh(range(len(runs)), likely, 0.7, color=(GREY, 0.4))
    axes.barh(range(len(runs)), least, 0.35, color=INK)
    for row, seconds in enumerate(likely):
        axes.annotate(f"{format_seconds(least[row])}, {format_seconds(seconds)}", (seconds, row), (4, 0), **TEXT)
    axes.set_xlim(0, max(likely) * 1.75)
    axes.set_xticks([])


def _powers(axes: Any, counts: Sequence[int], seconds: Sequence[float]) -> None:
    """Ticks at doublings, written with their units."""
    marks = [2**power for power in range(60) if min(counts) / 1.5 < 2**power < max(counts) * 1.5]
    axes.set_xticks(marks, [format_bytes(mark) for mark in marks])
    steps = [factor * 10.0**power for power in range(-6, 4) for factor in (1, 2, 5)]
    steps = [step for step in steps if min(seconds) / 1.5 < step < max(seconds) * 1.5]
    axes.set_yticks(steps, [format_seconds(step) for step in steps])
    axes.minorticks_off()
