"""Matplotlib figures of several ranks: what each takes and sends."""

from collections.abc import Mapping

from memlab.palette import GREY, QUIET_INK
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


def ranks(traces: Mapping[str, Trace], *, title: str) -> Picture:
    """Draw memory and traffic of ranks side by side: the parts of each one's peak, and the bytes sent in a step.

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
    sends.annotate("sent by this rank in a step", (0, 1), (0, 5), **ABOVE, fontsize=SMALL, color=QUIET_INK, va="bottom")
    write_title(takes, title, sources(traces.values()))
    draw_legend(picture)
    return picture
