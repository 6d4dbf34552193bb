"""The axes of bars that lie below one another, a named row each, whose lengths are written beside them."""

from collections.abc import Iterable

from matplotlib.axes import Axes

from memlab.plots import SMALL

ROW = 0.36  # inches


def frame_bars(axes: Axes, names: Iterable[str], longest: float) -> None:
    """Name the rows, the first on top, and leave room for text beside the longest bar; there is no scale."""
    named = list(names)
    axes.set_yticks(range(len(named)), named, fontsize=SMALL)
    axes.set_ylim(len(named) - 0.4, -0.6)
    axes.set_xlim(0, longest * 1.3)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
