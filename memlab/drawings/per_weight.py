"""The bytes that an optimizer keeps for each weight of a network: a little bar for each byte."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from memlab.drawings.bars import ROW, frame_bars
from memlab.palette import CATEGORY_COLORS, INK, QUIET_INK
from memlab.plots import SMALL, Picture, draw_legend, sources, write_title
from memlab.trace import Category, Phase, Trace

KINDS = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE, Category.TEMPORARY)
GAP = 0.12  # bytes, between two little bars
LEAST = 0.05  # of a byte: less cannot be seen


def per_weight(traces: Mapping[str, Trace], *, weights: int, title: str) -> Picture:
    """Draw, for each run, how many bytes it has for each weight: the weight, its gradient, its state, and temporaries.

    State is what is there when the step has ended; weights, gradients and the temporaries of the optimizer's step are
    taken where they are most.

    Args:
        traces: runs of one network, by the name of the optimizer.
        weights: how many the network has.
        title: the sentence that says the same.
    """
    picture = Picture(title, height=1.5 + ROW * len(traces))
    axes = picture.add_subplot()
    found = {name: bytes_per_weight(trace, weights) for name, trace in traces.items()}
    for row, kept in enumerate(found.values()):
        _draw_row(axes, row, kept)
    for kind in KINDS:
        axes.barh(0, 0, color=CATEGORY_COLORS[kind], alpha=0.85, label=kind.plural)
    frame_bars(axes, found, max(sum(kept.values()) for kept in found.values()))
    write_title(axes, title, f"each little bar is a byte for each weight; {sources(traces.values())}")
    draw_legend(picture)
    return picture


def bytes_per_weight(trace: Trace, weights: int) -> dict[Category, float]:
    """Return the bytes for each weight, by category."""
    timeline = trace.timeline
    most = {kind: max(timeline.get(kind, [0])) for kind in (Category.PARAMETER, Category.GRADIENT)}
    most[Category.OPTIMIZER_STATE] = timeline.get(Category.OPTIMIZER_STATE, [0])[-1]
    steps = [(first, last) for phase, first, last in trace.phases if phase == Phase.OPTIMIZER]
    passing: Sequence[int] = timeline.get(Category.TEMPORARY, [])
    most[Category.TEMPORARY] = max((max(passing[first : last + 1], default=0) for first, last in steps), default=0)
    return {kind: count / weights for kind, count in most.items()}


def _draw_row(axes: Axes, row: int, kept: Mapping[Category, float]) -> None:
    end = 0.0
    for kind in KINDS:
        rest = kept.get(kind, 0.0)
        while rest > LEAST:
            width = min(1.0, rest)
            look: dict[str, Any] = {"color": CATEGORY_COLORS[kind], "alpha": 0.85}
            axes.barh(row, max(width - GAP, LEAST), 0.7, end, **look)
            end, rest = end + width, rest - width
    state = kept.get(Category.OPTIMIZER_STATE, 0.0)
    whole: dict[str, Any] = {"fontsize": SMALL, "va": "center", "color": INK if state else QUIET_INK}
    axes.text(end + 0.2, row, f"{state:.2f} of state" if state else "no state", **whole)
