"""The memory bill with its time: what each line takes, and how long a step lasts on the card, least and likely."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from memlab.drawings.bill import ROW, Rung, record
from memlab.palette import GREY, INK, QUIET_INK
from memlab.plots import ABOVE, SMALL, Picture, draw_legend, pile, write_title
from memlab.units import byte_ticks, format_bytes, format_seconds

TEXT: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL, "color": INK}


def ladder(title: str) -> Picture:
    """Draw the lines of the memory bill below each other: on the left their bytes, on the right their time.

    The thin bar is what a step takes at least, by its arithmetic and its traffic; the wide one is an estimate.

    Args:
        title: the sentence that says the same.
    """
    found = record()
    picture = Picture(title, height=1.5 + ROW * len(found.rungs))
    takes, lasts = picture.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    _draw_bytes(takes, found.rungs)
    _draw_seconds(lasts, found.rungs)
    takes.set_yticks(range(len(found.rungs)), [rung.name for rung in found.rungs], fontsize=SMALL)
    takes.set_ylim(len(found.rungs) - 0.4, -0.6)
    lasts.annotate(
        "a step: at least (black), and probably (grey)",
        (0, 1),
        (0, 5),
        **ABOVE,
        fontsize=SMALL,
        color=QUIET_INK,
        va="bottom",
    )
    for axes in (takes, lasts):
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    write_title(takes, title, f"{found.model}, {found.batch}, predicted for a {found.card}")
    draw_legend(picture)
    return picture


def _draw_bytes(axes: Axes, rungs: Sequence[Rung]) -> None:
    peaks = pile(
        partial(axes.barh, range(len(rungs))), [rung.by_category for rung in rungs], least=0.01 * rungs[0].peak
    )
    for row, peak in enumerate(peaks):
        times = "" if peak > 0.9 * peaks[0] else f", {peaks[0] / peak:.2g} times less"
        axes.annotate(f"{format_bytes(peak)}{times}", (peak, row), (4, 0), **TEXT)
    ticks = byte_ticks(max(peaks))
    axes.set_xticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(0, max(peaks) * 1.35)


def _draw_seconds(axes: Axes, rungs: Sequence[Rung]) -> None:
    likely, least = [rung.likely_seconds for rung in rungs], [rung.least_seconds for rung in rungs]
    axes.barh(range(len(rungs)), likely, 0.7, color=(GREY, 0.4))
    axes.barh(range(len(rungs)), least, 0.35, color=INK)
    for row, seconds in enumerate(likely):
        axes.annotate(f"{format_seconds(least[row])}, {format_seconds(seconds)}", (seconds, row), (4, 0), **TEXT)
    axes.set_xlim(0, max(likely) * 1.75)
    axes.set_xticks([])
