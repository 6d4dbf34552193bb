"""A block of a network, and each tensor that it keeps for backward."""

from collections.abc import Sequence
from typing import Any

from memlab.alive import Alive, alive
from memlab.palette import CATEGORY_COLORS, INK, PHASE_SHADE, QUIET_INK
from memlab.plots import SMALL, Picture, sources, write_title
from memlab.trace import Category, Trace
from memlab.units import format_bytes

SMALLEST = 0.1  # of a unit: the statistics of norms and of attention, which nobody would see
OPERATORS = {  # by the names that people write
    **{"native_layer_norm": "LayerNorm", "addmm": "Linear", "mm": "Linear", "gelu": "GELU", "relu": "ReLU"},
    **{"silu": "SiLU", "add": "sum"},
}
ROOM = 1.35  # above the highest bar, for what stands there


def block(trace: Trace, name: str, *, title: str = "") -> Picture:
    """Draw the tensors that a block has kept when the peak is reached, in the order in which forward made them.

    Heights are in units of the block's output, a tensor of *batch x tokens x width* numbers.

    Args:
        trace: a run whose peak stands where backward begins, measured or predicted.
        name: of the block, as ``"blocks.5"``.
        title: the sentence that says the same; by default the number of units.
    """
    kept = kept_by(trace, name)
    unit = kept[-1].bytes
    units = [one.bytes / unit for one in kept]
    shape = " \u00d7 ".join(map(str, kept[-1].storage.shape))
    sentence = title or f"A block keeps {_count(sum(units))} times the size of its output ({shape}) for backward"
    picture = Picture(sentence, height=3.6)
    axes = picture.add_subplot()
    axes.bar(range(len(kept)), units, 0.9, color=CATEGORY_COLORS[Category.ACTIVATION], alpha=0.85)
    for place, height in enumerate(units):
        offset: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL, "color": INK}
        axes.annotate(_count(height), (place, height), (0, 4), **offset)
    first = 0
    for section in _sections(kept, name):
        last = first + len(section) - 1
        axes.axvspan(first - 0.5, last + 0.5, color="white" if first else PHASE_SHADE, zorder=0)
        share = f"{_count(sum(units[first : last + 1]))} of {_count(sum(units))}"
        text = f"{_layer(section[0], name).partition('_')[0]}: {share}"
        look: dict[str, Any] = {"ha": "center", "va": "top", "color": QUIET_INK, "fontsize": SMALL}
        axes.text((first + last) / 2, max(units) * ROOM, text, **look)
        first = last + 1
    axes.set_xticks(range(len(kept)), [_label(one, name) for one in kept], fontsize=SMALL)
    axes.set(xlim=(-0.5, len(kept) - 0.5), ylim=(0, max(units) * ROOM), yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    note = f"in units of {format_bytes(unit)}; named after the layer that made it, kept as input of the next"
    write_title(axes, sentence, f"{note}; {sources([trace])}")
    return picture


def _count(units: float) -> str:
    """A number of units; in 16 bits there are halves."""
    return f"{units:.1f}".removesuffix(".0")


def kept_by(trace: Trace, name: str) -> list[Alive]:
    """Return the activations that a block made and that are alive at the peak, small statistics left out."""
    made = [
        one
        for one in alive(trace, trace.peak_index)
        if one.storage.category == Category.ACTIVATION and one.born and f"{one.born.module}.".startswith(f"{name}.")
    ]
    return [one for one in made if one.bytes >= SMALLEST * made[-1].bytes]


def _sections(kept: Sequence[Alive], name: str) -> list[list[Alive]]:
    """Cut after each tensor that the block itself makes: the sums with what came around it."""
    found: list[list[Alive]] = [[]]
    for one in kept:
        found[-1].append(one)
        if not _layer(one, name):
            found.append([])
    return [section for section in found if section]


def _layer(one: Alive, name: str) -> str:
    return one.born.module.removeprefix(name).removeprefix(".") if one.born else ""


def _label(one: Alive, name: str) -> str:
    op = one.born.op.removeprefix("aten.").strip("_") if one.born else ""
    # Each device has its own operator for attention.
    known = "weighted values" if "attention" in op else OPERATORS.get(op, op)
    return "\n".join([*filter(None, _layer(one, name).replace("_", ".").split(".")), known])
