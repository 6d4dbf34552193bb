"""When each block of a network holds what it computed: the stairs of an ordinary step, the hills of checkpoints."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes

from memlab.categories import Phase
from memlab.drawings.owners import LAYER
from memlab.drawings.steps import draw_legend_below, frame_step
from memlab.palette import CATEGORY_COLORS, INK, PHASE_SHADE, QUIET_INK
from memlab.plots import SMALL, Picture, sources
from memlab.trace import Category, Trace
from memlab.units import format_bytes

COMPUTED = {Category.ACTIVATION: "kept from forward", Category.RECOMPUTED: "computed again in backward"}
ROW = 0.19  # inches
LETTER = 0.0105  # the width of a letter, as a part of all axes together

Held = dict[str, dict[Category, list[int]]]


def lives(traces: Mapping[str, Trace], *, title: str) -> Picture:
    """Draw, for each run, what its blocks hold of what they computed, through the step: a row for each block.

    All rows have one scale, and all steps another: time goes from left to right, estimated for a prediction and
    measured for a run.

    Args:
        traces: runs of one network, by the name to write above each.
        title: the sentence that says the same.
    """
    found = {name: held_by_blocks(trace) for name, trace in traces.items()}
    names = sorted({name for blocks in found.values() for name in blocks}, key=_number)
    picture = Picture(title, height=1.6 + ROW * len(names))
    every = picture.subplots(1, len(traces), sharey=True, squeeze=False)[0]
    most = max(map(_highest, found.values()))
    longest = max(trace.seconds[-1] for trace in traces.values())
    for axes, (name, trace) in zip(every, traces.items(), strict=True):
        letter = LETTER * len(traces) * longest
        _draw_rows(axes, trace, {block: found[name].get(block, {}) for block in names}, most, letter)
        frame_step(axes, name, trace, longest)
    every[0].set_yticks(range(len(names)), [name.rpartition(".")[2] for name in names], fontsize=SMALL)
    every[0].set_ylabel("block", fontsize=SMALL, color=QUIET_INK)
    every[0].set_ylim(len(names) - 0.4, -1.6)
    picture.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    draw_legend_below(picture, every[-1], f"a full row is {format_bytes(most)}; {sources(traces.values())}")
    return picture


def held_by_blocks(trace: Trace) -> Held:
    """Return what each block holds of what it computed, by category, at the start of the step and after each event."""
    owner: dict[int, str] = {}
    changes: Held = {}
    for moment, event in enumerate(trace.events, 1):
        layer = LAYER.match(event.module)
        if event.bytes > 0 and layer and layer[1]:  # in a numbered one of several
            owner.setdefault(event.storage, layer[0])
        if event.category in COMPUTED and event.storage in owner:
            of_block = changes.setdefault(owner[event.storage], {})
            of_block.setdefault(event.category, [0] * (len(trace.events) + 1))[moment] = event.bytes
    return {name: {kind: list(accumulate(row)) for kind, row in of.items()} for name, of in changes.items()}


def _number(block: str) -> tuple[str, int]:
    """Return what blocks are sorted by: ``"blocks.10"`` comes after ``"blocks.9"``."""
    owner, _, number = block.rpartition(".")
    return owner, int(number)


def _highest(held: Held) -> int:
    """Return the most that one block holds at any moment."""
    return max(max(map(sum, zip(*of_block.values(), strict=True)), default=0) for of_block in held.values())


def _draw_rows(axes: Axes, trace: Trace, held: Held, most: int, letter: float) -> None:
    """Draw the phases and the rows; a phase too short for its name, of letters ``letter`` seconds wide, has none."""
    seconds = trace.seconds
    for phase, first, last in trace.phases:
        if phase in (Phase.FORWARD, Phase.BACKWARD):
            color = PHASE_SHADE if phase == Phase.FORWARD else "white"
            axes.axvspan(seconds[first], seconds[last], color=color, zorder=0)
            middle = (seconds[first] + seconds[last]) / 2
            if seconds[last] - seconds[first] > letter * len(phase):
                axes.text(middle, -1.5, phase, ha="center", va="top", fontsize=SMALL, color=QUIET_INK)
    axes.axvline(seconds[-1], color=QUIET_INK, linestyle=":", linewidth=1.5)
    axes.text(seconds[-1], len(held) - 0.45, "end ", ha="right", va="bottom", fontsize=SMALL, color=QUIET_INK)
    for row, of_block in enumerate(held.values()):
        below = [row + 0.4] * len(seconds)
        for kind, label in COMPUTED.items():
            if kind in of_block:
                above = [base - 0.85 * count / most for base, count in zip(below, of_block[kind], strict=True)]
                look: dict[str, Any] = {"color": CATEGORY_COLORS[kind], "alpha": 0.85, "linewidth": 0, "step": "post"}
                _, labels = axes.get_legend_handles_labels()
                axes.fill_between(seconds, below, above, **look, label=None if label in labels else label)
                below = above
