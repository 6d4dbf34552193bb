"""Keys and values that travel round a ring of ranks: whose block each rank has in each step, and the work with it."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memlab.errors import BadValue
from memlab.palette import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET_INK, SKY, VERMILION, YELLOW
from memlab.plots import SMALL, Picture, check_some, write_title

COLORS = (SKY, ORANGE, GREEN, PURPLE, YELLOW, BLUE, VERMILION)  # of the ranks that blocks come from, in turn
ROOM = 1.6  # between two panels, in cells
Work = Sequence[Sequence[float]]


def ring(work: Mapping[str, Work], *, title: str) -> Picture:
    """Draw whose keys and values every rank has in every step, and how many of its scores the mask lets through.

    Args:
        work: for each way to cut the sequence, by the name to write above: of each rank, in each step, the part of its
            scores that are computed, from 0 to 1. In step s, rank r has the block of rank r - s.
        title: the sentence that says the same.

    Raises:
        BadValue: nothing to draw; a table that is not square; a part below 0 or above 1.
    """
    check_some(work)
    for name, table in work.items():
        _check(name, table)
    ranks = max(len(table) for table in work.values())
    picture = Picture(title, height=1.5 + 0.42 * ranks)
    axes = picture.add_subplot()
    starts = [number * (ranks + ROOM) for number in range(len(work))]
    for start, (name, table) in zip(starts, work.items(), strict=True):
        _panel(axes, start, name, table)
    axes.set_xlim(0, starts[-1] + ranks + 1)
    axes.set_ylim(ranks + 0.1, -0.9)
    axes.set_xticks([])
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)], fontsize=SMALL)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    write_title(axes, title, "number: whose keys and values a rank has; filled: part of scores computed; sum: its work")
    return picture


def _panel(axes: Axes, start: float, name: str, table: Work) -> None:
    ranks = len(table)
    for rank, parts in enumerate(table):
        for step, part in enumerate(parts):
            source = (rank - step) % ranks
            color = COLORS[source % len(COLORS)]
            corner = (start + step + 0.05, rank - 0.42)
            axes.add_patch(Rectangle(corner, 0.9, 0.84, facecolor="white", edgecolor=color, linewidth=1.5))
            axes.add_patch(Rectangle(corner, 0.9 * part, 0.84, facecolor=color, alpha=0.75, linewidth=0))
            axes.text(start + step + 0.5, rank, str(source), ha="center", va="center", fontsize=SMALL, color=INK)
        axes.text(start + ranks + 0.12, rank, f"{sum(parts):.2f}", va="center", fontsize=SMALL, color=QUIET_INK)
    for step in range(ranks):
        place = start + step + 0.5, -0.65
        axes.text(*place, f"step {step}", ha="center", va="center", fontsize=SMALL, color=QUIET_INK)
    axes.text(start + ranks + 0.12, -0.65, "sum", va="center", fontsize=SMALL, color=QUIET_INK)
    axes.text(start + ranks / 2, ranks - 0.2, name, ha="center", va="center", fontsize=SMALL, color=INK)


def _check(name: str, table: Work) -> None:
    if any(len(parts) != len(table) for parts in table):
        raise BadValue(f"{name!r} has {len(table)} ranks, so give each as many steps.")
    if any(not 0 <= part <= 1 for parts in table for part in parts):
        raise BadValue(f"{name!r} has a part of the scores below 0 or above 1: give a part of all scores of a step.")
