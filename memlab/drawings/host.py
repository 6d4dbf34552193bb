"""A drawing of the bytes of a step: those on the card, and those in the memory of the host."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from memlab.palette import INK
from memlab.plots import SMALL, Picture, draw_legend, pile, sources, write_title
from memlab.trace import Category, Trace
from memlab.units import byte_ticks, format_bytes

ROW = 0.42  # inches
LEAST = 0.01  # of the highest peak: a category that takes less cannot be seen, so it needs no name


def host(traces: Mapping[str, Trace], on_host: Mapping[str, Mapping[Category, int]], *, title: str) -> Picture:
    """Draw the peak of each run to the right, and to the left of the same axis what the host holds for it.

    Args:
        traces: runs that did not run out of memory, by the name to write beside each.
        on_host: for each of these names the bytes by category that the host holds at most; empty for nothing.
        title: the sentence that says the same.
    """
    picture = Picture(title, height=1.3 + ROW * len(traces))
    axes = picture.add_subplot()
    least = LEAST * max(trace.peak_allocated for trace in traces.values())
    here = pile(partial(axes.barh, range(len(traces))), [trace.by_category for trace in traces.values()], least=least)
    away = pile(partial(_leftwards, axes), [on_host[name] for name in traces])
    for row, (ours, theirs) in enumerate(zip(here, away, strict=True)):
        look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL, "color": INK}
        axes.annotate(format_bytes(ours), (ours, row), (4, 0), **look)
        axes.annotate(format_bytes(theirs) if theirs else "nothing", (-theirs, row), (-4, 0), ha="right", **look)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(traces)), list(traces), fontsize=SMALL)
    axes.set_ylim(len(traces) - 0.4, -1.1)
    axes.annotate("\u2190 the host holds", (0, -0.6), (-6, 0), ha="right", textcoords="offset points", fontsize=SMALL)
    axes.annotate("the card's peak \u2192", (0, -0.6), (6, 0), textcoords="offset points", fontsize=SMALL)
    ticks = byte_ticks(max(*here, *away))
    places = [(count, text) for count, text in ticks] + [(-count, text) for count, text in ticks if count]
    axes.set_xticks([count for count, _ in places], [text for _, text in places])
    axes.set_xlim(-1.25 * max(away) - 0.08 * max(here), 1.2 * max(here))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    write_title(axes, title, sources(traces.values()))
    draw_legend(picture)
    return picture


def _leftwards(axes: Any, lengths: list[int], height: float, starts: list[int], **look: Any) -> None:
    """Draw bars as ``barh`` does, on the other side of zero; a colour that the legend knows is not named again."""
    places = range(len(lengths))
    if look["label"] in axes.get_legend_handles_labels()[1]:
        look["label"] = None
    axes.barh(places, [-length for length in lengths], height, [-start for start in starts], **look)
