"""Memory that methods of fine-tuning take, measured and predicted, beside how many weights they train."""

from collections.abc import Sequence
from typing import NamedTuple

from memlab.drawings.bars import ROW
from memlab.palette import BLUE, INK, ORANGE, QUIET_INK
from memlab.plots import SMALL, Picture, write_title


class Method(NamedTuple):
    """One method: how many weights it trains, and what a run takes, measured and predicted, in bytes."""

    name: str
    weights: int
    measured: int
    predicted: int


def methods(found: Sequence[Method], *, note: str, title: str) -> Picture:
    """Draw a bar for what each method took, with a ring where the prediction is, and the number of its weights.

    Args:
        found: the methods, from the first row to the last.
        note: where the figures are from.
        title: the sentence that says the same.
    """
    picture = Picture(title, height=1.7 + ROW * len(found))
    axes = picture.add_subplot()
    rows = range(len(found))
    axes.barh(rows, [method.measured / 1e9 for method in found], 0.6, color=(BLUE, 0.6), label="measured")
    rings = axes.scatter([method.predicted / 1e9 for method in found], rows, s=60, facecolors="none", zorder=3)
    rings.set(edgecolor=ORANGE, linewidth=2, label="predicted")
    most = max(method.measured for method in found) / 1e9
    for row, method in enumerate(found):
        axes.text(0.4, row, f"{method.weights:,}", fontsize=SMALL, va="center", color=INK)
        axes.text(method.measured / 1e9 + 1.2, row, f"{method.measured / 1e9:.1f} GB", fontsize=SMALL, va="center")
    axes.set_yticks(rows, [method.name for method in found], fontsize=SMALL)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(0, 1.15 * most)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("GB reserved at most", fontsize=SMALL, color=QUIET_INK)
    axes.spines[["top", "right"]].set_visible(False)
    write_title(axes, title, f"in each bar: how many weights are trained; {note}")
    picture.legend(loc="outside lower left", ncols=2, fontsize=SMALL, frameon=False)
    return picture
