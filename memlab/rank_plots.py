"""Matplotlib figures of several ranks: what each takes and sends, and when the stages of a pipeline work."""

from collections.abc import Mapping, Sequence

from memlab.palette import BLUE, GREY, INK, QUIET_INK
from memlab.plots import (
    ABOVE,
    SMALL,
    Picture,
    byte_axis,
    check_some,
    draw_legend,
    sources,
    stack,
    write_above,
    write_title,
)
from memlab.trace import Trace
from memlab.units import format_bytes

FORWARD, BACKWARD = BLUE, "#DE8F05"


def ranks(traces: Mapping[str, Trace], *, title: str) -> Picture:
    """What ranks take and what they send, beside each other: the parts of each one's peak, and its bytes in a step.

    Args:
        traces: one rank each, by the name to write under it.
        title: the sentence that says the same.

    Raises:
        BadValue: when there is nothing to draw.
    """
    check_some(traces)
    picture = Picture(title)
    takes, sends = picture.subplots(1, 2, width_ratios=(3, 2))
    byte_axis(takes, stack(takes, traces) * 1.15)
    sent = [trace.sent for trace in traces.values()]
    sends.bar(list(traces), sent, 0.7, color=GREY)
    for place, count in enumerate(sent):
        write_above(sends, place, count, format_bytes(count))
    byte_axis(sends, max(*sent, 1) * 1.15)
    sends.annotate("sent by it in a step", (0, 1), (0, 5), **ABOVE, fontsize=SMALL, color=QUIET_INK, va="bottom")
    write_title(takes, title, sources(traces.values()))
    draw_legend(picture)
    return picture


def pipeline(stages: Sequence[Mapping[int, tuple[str, int]]], *, title: str) -> Picture:
    """When each stage of a pipeline works, a row for each, and on which micro-batch; it waits where nothing is drawn.

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
