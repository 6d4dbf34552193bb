"""From when until when the largest tensors of a step are alive: a bar for each, from its birth to its end."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from memlab.categories import Phase
from memlab.drawings.steps import draw_legend_below, frame_step
from memlab.palette import CATEGORY_COLORS, INK, PHASE_SHADE, QUIET_INK
from memlab.plots import SMALL, Picture, sources
from memlab.trace import Category, Trace
from memlab.units import format_bytes

LEAST = 0.08  # of the peak: a smaller tensor has no bar
COMPUTED = (Category.HELD, Category.ACTIVATION, Category.RECOMPUTED, Category.TEMPORARY)
ROW = 0.3  # inches


class Span(NamedTuple):
    """A tensor's time in the step: from before which event to after which, and what made it."""

    begin: int
    end: int
    bytes: int
    category: Category
    op: str


def spans(traces: Mapping[str, Trace], *, names: Mapping[str, str], title: str, least: float = LEAST) -> Picture:
    """Draw, for each run, when each of its largest tensors is alive; weights, inputs and workspace are left out.

    All steps have one time axis: estimated for a prediction and measured for a run. A dotted line marks the peak.

    Args:
        traces: runs of one loop, by the name to write above each.
        names: what to call the tensor that an operator makes, as in ``{"aten.mm": "logits"}``; ``""`` is the operator
            of those that the step began with. An operator that has no name here is written as it is.
        title: the sentence that says the same.
        least: the part of the peak that a tensor must have to get a bar.
    """
    found = {name: spans_of(trace, least) for name, trace in traces.items()}
    in_order = sorted(chain.from_iterable(found.values()))
    rows = list(dict.fromkeys(names.get(one.op, one.op) for one in in_order))
    picture = Picture(title, height=1.9 + ROW * len(rows))
    every = picture.subplots(1, len(traces), sharey=True, squeeze=False)[0]
    longest = max(trace.seconds[-1] for trace in traces.values())
    for axes, (name, trace) in zip(every, traces.items(), strict=True):
        _draw_phases(axes, trace)
        for one in found[name]:
            _draw_span(axes, trace, rows.index(names.get(one.op, one.op)), one)
        axes.axvline(trace.seconds[trace.peak_index], color=INK, linestyle=":", linewidth=1.5)
        frame_step(axes, name, trace, longest)
    for category in sorted({one.category for one in chain.from_iterable(found.values())}, key=COMPUTED.index):
        every[0].barh(0, 0, color=CATEGORY_COLORS[category], alpha=0.85, label=category.plural)
    every[0].set_yticks(range(len(rows)), rows, fontsize=SMALL)
    every[0].set_ylim(len(rows) - 0.4, -1.3)
    picture.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    largest = max(one.bytes for of_run in found.values() for one in of_run)
    note = f"each bar is a tensor of up to {format_bytes(largest)}; dotted: the peak; {sources(traces.values())}"
    draw_legend_below(picture, every[0], note)
    return picture


def spans_of(trace: Trace, least: float = LEAST) -> list[Span]:
    """Return the largest tensors of a step in the order of their births, without weights, inputs and workspace."""
    alive: dict[int, tuple[int, int, Category, str]] = {
        place: (0, storage.start, storage.category, "")
        for place, storage in enumerate(trace.storages)
        if storage.start > 0
    }
    ended: list[Span] = []
    for place, event in enumerate(trace.events):
        if event.bytes > 0 and event.storage not in alive:
            alive[event.storage] = (place + 1, event.bytes, event.category, event.op)
        elif event.bytes < 0 and event.storage in alive:
            begin, count, category, op = alive.pop(event.storage)
            ended.append(Span(begin, place + 1, count, category, op))
    last = len(trace.events)
    ended += [Span(begin, last, count, category, op) for begin, count, category, op in alive.values()]
    smallest = least * trace.peak_allocated
    return sorted(one for one in ended if one.bytes >= smallest and one.category in COMPUTED)


def _draw_phases(axes: Axes, trace: Trace) -> None:
    for phase, first, last in trace.phases:
        begin, end = trace.seconds[first], trace.seconds[last]
        if phase is Phase.OTHER or end == begin:
            continue
        if phase in (Phase.FORWARD, Phase.OPTIMIZER):
            axes.axvspan(begin, end, color=PHASE_SHADE, linewidth=0, zorder=0)
        if end - begin > 0.1 * trace.seconds[-1]:
            look: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": SMALL, "color": QUIET_INK}
            axes.text((begin + end) / 2, -1.25, phase, **look)


def _draw_span(axes: Axes, trace: Trace, row: int, one: Span) -> None:
    begin, end = trace.seconds[one.begin], trace.seconds[one.end]
    width = max(end - begin, 0.004 * trace.seconds[-1])  # a short life must be seen
    axes.barh(row, width, 0.66, begin, color=CATEGORY_COLORS[one.category], alpha=0.85, zorder=2)
