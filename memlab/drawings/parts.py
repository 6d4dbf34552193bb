"""A drawing of the peak by parts of a network, from its input to its loss."""

from collections.abc import Mapping
from functools import partial
from statistics import median

from memlab.alive import alive
from memlab.drawings.owners import part_of
from memlab.plots import SMALL, Picture, byte_axis, draw_legend, pile, sources, write_above, write_title
from memlab.trace import Category, Trace
from memlab.units import format_bytes

LEAST = 0.005  # of the peak


def parts(trace: Trace, *, title: str = "") -> Picture:
    """Draw the bytes at the peak by the part of the network that they belong to, in the order in which it computes.

    A weight, its gradient and its optimizer state belong to the layer with that weight; an activation to the layer that
    computed it. What the model computes outside of its layers, such as the loss, is the last part. Inputs and workspace
    belong to none and are left out; so are parts that hold less than a two-hundredth of the peak.

    Args:
        trace: a run that did not run out of memory, measured or predicted.
        title: the sentence that says the same; by default it names the largest part.
    """
    least = LEAST * trace.peak_allocated
    held = {name: part for name, part in parts_of(trace).items() if sum(part.values()) >= least}
    sentence = title or _sentence(held)
    picture = Picture(sentence)
    axes = picture.add_subplot()
    heights = pile(partial(axes.bar, range(len(held))), list(held.values()))
    largest = heights.index(max(heights))
    write_above(axes, largest, heights[largest], format_bytes(heights[largest]))
    axes.set_xticks(range(len(held)), list(map(_label, held)), fontsize=SMALL)
    byte_axis(axes, max(heights) * 1.15)
    write_title(axes, sentence, sources([trace]))
    draw_legend(picture)
    return picture


def _sentence(held: Mapping[str, Mapping[Category, int]]) -> str:
    """Name the largest part, and compare it with the blocks, where there are several alike."""
    sums = {name: sum(part.values()) for name, part in held.items()}
    largest = max(sums, key=sums.__getitem__)
    blocks = [count for name, count in sums.items() if name.rpartition(".")[2].isdigit()]
    told = f"The {largest.replace('_', ' ')} holds {format_bytes(sums[largest])}"
    return told if not blocks else f"{told}, as much as {sums[largest] / median(blocks):.2g} blocks"


def _label(name: str) -> str:
    """Return a name that is no wider than its bar: of one of several blocks its number."""
    number = name.rpartition(".")[2]
    return number if number.isdigit() else name.replace("_", "\n")


def parts_of(trace: Trace) -> dict[str, Mapping[Category, int]]:
    """Return the bytes at the peak by part and category; ``"loss"`` is what the model computes outside of layers."""
    held: dict[str, dict[Category, int]] = {}
    for one in alive(trace, trace.peak_index):
        if one.storage.category in (Category.INPUT, Category.WORKSPACE):
            continue
        part = held.setdefault(part_of(one), {})
        part[one.storage.category] = part.get(one.storage.category, 0) + one.bytes
    order = [name for name in held if name != "loss"] + ["loss"] * ("loss" in held)
    return {name: held[name] for name in order}
