"""A drawing of each run's peak, split into the model, the activations of its blocks, and the logits with the loss."""

from collections.abc import Mapping
from functools import partial

from memlab.alive import alive
from memlab.drawings.owners import LAYER, part_of
from memlab.palette import CATEGORY_COLORS, INK, QUIET_INK
from memlab.plots import SMALL, Picture, byte_axis, sources, write_above, write_title
from memlab.trace import Category, Trace
from memlab.units import format_bytes

MODEL = "weights, gradients, optimizer state"
BLOCKS = "activations of the blocks"
LOSS = "logits and loss"
REST = "workspace, inputs"
COLORS = {
    MODEL: CATEGORY_COLORS[Category.PARAMETER],
    BLOCKS: CATEGORY_COLORS[Category.ACTIVATION],
    LOSS: CATEGORY_COLORS[Category.TEMPORARY],
    REST: CATEGORY_COLORS[Category.WORKSPACE],
}
STAYING = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE)
SEEN = 0.06  # of the highest bar: a label is as high


def split(traces: Mapping[str, Trace], *, title: str) -> Picture:
    """Draw the peak of each run as a bar of what belongs to the model, to its blocks, and to the logits and the loss.

    Args:
        traces: runs that did not run out of memory, by the name to write below each.
        title: the sentence that says the same.
    """
    found = {name: split_of(trace) for name, trace in traces.items()}
    picture = Picture(title, height=3.6)
    axes = picture.add_subplot()
    highest = max(sum(pieces.values()) for pieces in found.values())
    below = [0] * len(found)
    for piece, color in COLORS.items():
        heights = [pieces.get(piece, 0) for pieces in found.values()]
        label = piece if max(heights) > 0.01 * highest else None
        axes.bar(range(len(found)), heights, 0.7, below, color=color, alpha=0.85, label=label)
        write = partial(axes.text, ha="center", va="center", fontsize=SMALL, color="white")
        for place, (bottom, height) in enumerate(zip(below, heights, strict=True)):
            if height > SEEN * highest:
                write(place, bottom + height / 2, format_bytes(height))
        below = [bottom + height for bottom, height in zip(below, heights, strict=True)]
    for place, height in enumerate(below):
        write_above(axes, place, height, format_bytes(height))
    axes.set_xticks(range(len(found)), list(found), fontsize=SMALL, color=INK)
    byte_axis(axes, highest * 1.12)
    axes.tick_params(axis="y", labelcolor=QUIET_INK)
    write_title(axes, title, sources(traces.values()))
    picture.legend(loc="outside lower left", ncols=3, fontsize=SMALL, frameon=False)
    return picture


def split_of(trace: Trace) -> dict[str, int]:
    """Return the bytes at the peak by piece; together they are the peak."""
    pieces: dict[str, int] = {}
    for one in alive(trace, trace.peak_index):
        if one.storage.category == Category.WORKSPACE:
            continue
        piece = _piece(one.storage.category, part_of(one))
        pieces[piece] = pieces.get(piece, 0) + one.bytes
    pieces[REST] = trace.peak_allocated - sum(count for piece, count in pieces.items() if piece != REST)
    return pieces


def _piece(category: Category, part: str) -> str:
    if category in STAYING:
        return MODEL
    if category == Category.INPUT:
        return REST
    layer = LAYER.match(part)
    return BLOCKS if layer and layer[1] else LOSS
