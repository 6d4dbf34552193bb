"""A frozen matrix and the two thin ones of LoRA beside it, with the bytes that each takes in a step."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memlab.palette import BLUE, INK, ORANGE, QUIET_INK
from memlab.plots import SMALL, Picture, sources, write_title
from memlab.trace import Category, Storage, Trace
from memlab.units import format_bytes

GAP = 0.1  # between two matrices, of the longest side
OF_A_WEIGHT = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)


def adapter(trace: Trace, layer: str, *, title: str) -> Picture:
    """Draw the matrices of one adapted layer to scale, each with its weight, its gradient and its optimizer state.

    Args:
        trace: a run with LoRA, measured or predicted.
        layer: the name of an adapted Linear, as in ``"blocks.0.attention.qkv"``.
        title: the sentence that says the same.
    """
    matrices = matrices_of(trace, layer)
    longest = max(size for matrix, _ in matrices for size in matrix.shape)
    picture = Picture(title, height=3.6)
    axes = picture.add_subplot()
    left = 0.0
    for matrix, taken in matrices:
        rows, columns = (size / longest for size in matrix.shape)
        color = ORANGE if Category.GRADIENT in taken else BLUE
        axes.add_patch(Rectangle((left, 1 - rows), columns, rows, facecolor=color, edgecolor=color, linewidth=1))
        _write(axes, left + columns + 0.02, 1 - rows / 2 if rows > GAP else 1, matrix, taken)
        left += columns + 0.02 + 6 * GAP
    axes.set(xlim=(-0.02, max(left, 1)), ylim=(-0.02, 1.02), xticks=[], yticks=[])
    axes.set_aspect("auto")
    axes.spines[:].set_visible(False)
    write_title(axes, title, f"{layer}, sides to scale, orange is trained; {sources([trace])}")
    return picture


def matrices_of(trace: Trace, layer: str) -> list[tuple[Storage, dict[Category, int]]]:
    """Return the matrices of a layer, the largest first, each with its bytes by category."""
    inside = [one for one in trace.storages if one.name.startswith(f"{layer}.")]
    found = [one for one in inside if one.category is Category.PARAMETER and len(one.shape) == 2]
    told = []
    for matrix in sorted(found, key=lambda one: -one.shape[0] * one.shape[1]):
        taken: dict[Category, int] = {}
        for number, one in enumerate(trace.storages):
            its = one.name == matrix.name or one.name.startswith((f"{matrix.name}.", f"{matrix.name} "))
            if its and one.category in OF_A_WEIGHT:
                born = (event.bytes for event in trace.events if event.storage == number)
                taken[one.category] = taken.get(one.category, 0) + max(one.start, *born, 0)
        told.append((matrix, taken))
    return told


def _write(axes: Axes, x: float, y: float, matrix: Storage, taken: dict[Category, int]) -> None:
    name = matrix.name.rpartition(".")[2].replace("weight", "W")
    look: dict[str, Any] = {"va": "center" if y < 1 else "top", "fontsize": SMALL}
    shape = "\u202f\u00d7\u202f".join(map(str, matrix.shape))
    lines = [f"{kind}: {format_bytes(taken[kind])}" for kind in OF_A_WEIGHT if kind in taken]
    axes.text(x, y, "\n".join([f"{name}  {shape}", *lines]), color=INK if taken else QUIET_INK, **look)
