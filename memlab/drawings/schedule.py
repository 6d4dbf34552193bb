"""The schedule of a pipeline: which stage works on which micro-batch, and when it waits."""

from collections.abc import Mapping, Sequence

from memlab.palette import BLUE, INK
from memlab.plots import SMALL, Picture, check_some, draw_legend, write_title

FORWARD, BACKWARD = BLUE, "#DE8F05"


def schedule(stages: Sequence[Mapping[int, tuple[str, int]]], *, title: str) -> Picture:
    """Draw when each stage of a pipeline works, and on which micro-batch; it waits where nothing is drawn.

    Args:
        stages: of each stage, what it does in which slot of time: ``("forward", 3)`` or ``("backward", 3)``.
        title: the sentence that says the same.

    Raises:
        BadValue: when there is nothing to draw.
    """
    check_some(stages)
    picture = Picture(title, height=1.2 + 0.35 * len(stages))
    axes = picture.add_subplot()
    for work, color in (("forward", FORWARD), ("backward", BACKWARD)):
        for row, slots in enumerate(stages):
            places = [(slot, 1) for slot, (what, _) in slots.items() if what == work]
            label = work if row == 0 else None
            axes.broken_barh(places, (row - 0.4, 0.8), facecolors=color, edgecolors="white", label=label)
    for row, slots in enumerate(stages):
        for slot, (work, batch) in slots.items():
            color = "white" if work == "forward" else INK  # a contrast of 4.5 with the ground
            axes.text(slot + 0.5, row, str(batch), ha="center", va="center", fontsize=SMALL, color=color)
    axes.set_ylim(len(stages) - 0.5, -0.5)
    axes.set_yticks(range(len(stages)), [f"stage {row}" for row in range(len(stages))])
    axes.spines[["top", "right"]].set_visible(False)
    write_title(axes, title, "a slot of time in each column, the number of the micro-batch in it")
    draw_legend(picture)
    return picture
