"""Tensors as boxes in a row: filled, if autograd keeps them for backward."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from memlab.palette import CATEGORY_COLORS, QUIET_INK
from memlab.trace import Category

KEPT = CATEGORY_COLORS[Category.ACTIVATION]


def draw_box(axes: Axes, left: float, right: float, row: float, *, is_kept: bool, height: float) -> None:
    """Draw a box with round corners around ``row``: filled, or dashed where nobody keeps the tensor."""
    look: dict[str, Any] = {"facecolor": KEPT, "edgecolor": KEPT} if is_kept else {"facecolor": "white"}
    look |= {} if is_kept else {"edgecolor": QUIET_INK, "linestyle": "--"}
    corner = (left, row - height / 2)
    axes.add_patch(FancyBboxPatch(corner, right - left, height, boxstyle="round,pad=0,rounding_size=0.08", **look))


def address(tensor: torch.Tensor) -> int:
    """Return where the memory of a tensor begins, which its views share."""
    return tensor.untyped_storage().data_ptr()
