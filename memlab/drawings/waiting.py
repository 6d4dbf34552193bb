"""A drawing of the batches that wait on the host and on the card, a box for each."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memlab.palette import CATEGORY_COLORS, INK, QUIET_INK
from memlab.plots import SMALL, Picture, sources, write_title
from memlab.trace import Category, Trace
from memlab.units import format_bytes

ROW = 0.5  # inches
BOX = 0.8  # of the place that a batch has


def waiting(loaders: Mapping[str, tuple[int, Trace]], *, batch: int, title: str) -> Picture:
    """Draw, for each loader, the batches that wait on the host, and to the right of the bus those on the card.

    The batch at work is drawn darker than those that wait on the card.

    Args:
        loaders: by name, how many batches the host has ready at most, and the run, whose inputs are on the card.
        batch: bytes of one.
        title: the sentence that says the same.
    """
    picture = Picture(title, height=1.5 + ROW * len(loaders))
    axes = picture.add_subplot()
    counts = {name: (ready, on_card(trace, batch)) for name, (ready, trace) in loaders.items()}
    for row, (ready, there) in enumerate(counts.values()):
        for place in range(ready):
            _box(axes, -place - 1, row, 0.35)
        for place in range(there):
            _box(axes, place, row, 0.45 if place else 0.95)
        look: dict[str, Any] = {"va": "center", "fontsize": SMALL}
        left = f"{format_bytes(ready * batch)} " if ready else "nothing "
        axes.text(-ready - 0.1, row, left, ha="right", color=INK if ready else QUIET_INK, **look)
        axes.text(there + 0.1, row, f" {format_bytes(there * batch)}", color=INK, **look)
    axes.axvline(-0.1, color=INK, linewidth=1)
    axes.text(-0.3, -0.75, "\u2190 ready on the host", ha="right", va="center", fontsize=SMALL)
    axes.text(0.1, -0.75, "on the card \u2192", va="center", fontsize=SMALL)
    most = max(ready for ready, _ in counts.values()), max(there for _, there in counts.values())
    wide = sum(most)
    axes.set(xlim=(-most[0] - 0.15 * wide, most[1] + 0.15 * wide), ylim=(len(counts) - 0.4, -1.1), xticks=[])
    axes.set_yticks(range(len(counts)), list(counts), fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.spines[:].set_visible(False)
    note = f"a box is a batch of {format_bytes(batch)}, the dark one is at work"
    write_title(axes, title, f"{note}; {sources(trace for _, trace in loaders.values())}")
    return picture


def on_card(trace: Trace, batch: int) -> int:
    """Return how many batches a run has on its device at its peak."""
    return round(trace.by_category.get(Category.INPUT, 0) / batch)


def _box(axes: Axes, left: int, row: int, shade: float) -> None:
    color = CATEGORY_COLORS[Category.INPUT]
    axes.add_patch(Rectangle((left, row - BOX / 2.4), BOX, BOX / 1.2, facecolor=color, alpha=shade, edgecolor=INK))
