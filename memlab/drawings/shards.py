"""Several cards as the optimizer makes its step: whole copies, or pieces on each."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from memlab.categories import Phase
from memlab.palette import INK, QUIET_INK
from memlab.plots import SMALL, Picture, byte_axis, draw_legend, pile, sources, write_above, write_title
from memlab.trace import Category, Trace
from memlab.units import format_bytes

BELOW: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "top", "annotation_clip": False}
KEPT = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)


def shards(schemes: Mapping[str, Sequence[Trace]], *, title: str) -> Picture:
    """Draw the parameters, gradients and optimizer state of every rank, as its optimizer begins, side by side.

    Args:
        schemes: the traces of all ranks, for each way to train on them, by the name to write below.
        title: the sentence that says the same.
    """
    picture = Picture(title)
    axes = picture.add_subplot()
    places = [
        start + rank
        for start, traces in zip(_starts(schemes), schemes.values(), strict=True)
        for rank in range(len(traces))
    ]
    every = [trace for traces in schemes.values() for trace in traces]
    heights = pile(partial(axes.bar, places), list(map(kept, every)))
    of = dict(zip(places, heights, strict=True))
    for start, (name, traces) in zip(_starts(schemes), schemes.items(), strict=True):
        ours = [of[start + rank] for rank in range(len(traces))]
        middle = start + (len(traces) - 1) / 2
        write_above(axes, middle, max(ours), _each(ours))
        axes.annotate(name, (middle, 0), (0, -20), **BELOW, fontsize=SMALL, fontweight="bold", color=INK)
    axes.set_xticks(places, [str(trace.rank) for trace in every], fontsize=SMALL)
    axes.set_xlabel("rank", fontsize=SMALL, color=QUIET_INK, labelpad=16)
    byte_axis(axes, 1.15 * max(heights))
    write_title(axes, title, f"as the optimizer makes its step; {sources(every)}")
    draw_legend(picture)
    return picture


def _starts(schemes: Mapping[str, Sequence[Trace]]) -> list[int]:
    """Return where the bars of each scheme begin, one bar's room from the scheme before it."""
    counts = [len(traces) + 1 for traces in schemes.values()]
    return [sum(counts[:number]) for number in range(len(counts))]


def _each(counts: Sequence[int]) -> str:
    least, most = format_bytes(min(counts)), format_bytes(max(counts))
    return f"{most} each" if least == most else f"{least} to {most}"


def kept(trace: Trace) -> dict[Category, int]:
    """Return the bytes of a rank's parameters, gradients and optimizer state as its optimizer begins.

    Raises:
        StopIteration: the step has no optimizer.
    """
    begins = next(first for phase, first, _ in trace.phases if phase is Phase.OPTIMIZER)
    return {category: trace.timeline[category][begins] for category in KEPT if category in trace.timeline}
