"""Attention's table of scores, drawn to scale beside what a fused kernel keeps in its place."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from matplotlib.patches import Rectangle

from memlab.alive import alive
from memlab.palette import CATEGORY_COLORS, INK, QUIET_INK
from memlab.plots import SMALL, Picture, sources, write_title
from memlab.trace import Category, Phase, Trace
from memlab.units import format_bytes

GAP = 0.25  # between two squares, of the largest side
FREE = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # of lines behind a text
LINE = 0.085  # of text, of the largest side


def scores(pairs: Mapping[int, tuple[Trace, Trace]], layer: str, *, title: str) -> Picture:
    """Draw what one attention keeps for backward, with its table and without, as squares whose areas are the bytes.

    Args:
        pairs: for each number of tokens a run with the table and a fused one.
        layer: the name of the attention, as in ``"blocks.0.attention"``.
        title: the sentence that says the same.
    """
    kept = {
        tokens: (kept_by_layer(plain, layer), kept_by_layer(fused, layer)) for tokens, (plain, fused) in pairs.items()
    }
    largest = sqrt(max(max(both) for both in kept.values()))
    picture = Picture(title, height=3.6)
    axes = picture.add_subplot()
    left = 0.0
    color = CATEGORY_COLORS[Category.ACTIVATION]
    for tokens, (with_table, without) in kept.items():
        side, inner = sqrt(with_table) / largest, sqrt(without) / largest
        axes.add_patch(Rectangle((left, 0), side, side, facecolor="white", edgecolor=QUIET_INK, linestyle="--"))
        axes.add_patch(Rectangle((left, 0), inner, inner, facecolor=color, edgecolor=color))
        look: dict[str, Any] = {"fontsize": SMALL, "color": INK}
        axes.text(left, side + LINE / 3, format_bytes(with_table), va="bottom", **look)
        axes.text(
            left + inner + LINE / 4, LINE / 3, format_bytes(without), va="bottom", fontweight="bold", bbox=FREE, **look
        )
        axes.text(left, -LINE / 2, f"{tokens:,} tokens", va="top", **look)
        left += max(side, inner + 0.3) + GAP
    axes.set(xlim=(-0.03, max(left, 2.2)), ylim=(-2 * LINE, 1 + 2 * LINE), xticks=[], yticks=[])
    axes.set_aspect("equal", anchor="W")
    axes.spines[:].set_visible(False)
    traces = [trace for pair in pairs.values() for trace in pair]
    write_title(axes, title, f"dashed: with the table, filled: fused; areas to scale; {sources(traces)}")
    return picture


def kept_by_layer(trace: Trace, layer: str) -> int:
    """Return the bytes that a layer and what is in it have computed and that are alive when backward begins."""
    begins = next(first for phase, first, _ in trace.phases if phase == Phase.BACKWARD)
    born_inside = (one for one in alive(trace, begins) if one.born and f"{one.born.module}.".startswith(f"{layer}."))
    return sum(one.bytes for one in born_inside)
