"""A drawing of the numbers that a 16-bit format can hold, beside those that a run has computed."""

from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.axes import Axes

from memlab.palette import INK, PHASE_SHADE, QUIET_INK
from memlab.plots import LINES, SMALL, Picture, write_title

SHOWN = (-40, 20)  # powers of two
FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def formats(values: Mapping[str, torch.Tensor], *, title: str = "") -> Picture:
    """Draw how large the numbers of some tensors are, as powers of two, and below them what each format reaches.

    Zeros are left out: no format loses them.

    Args:
        values: by the name to write, such as the gradients of a model; any shape.
        title: the sentence that says the same; by default the share of the first that float16 rounds to zero.
    """
    sizes = {name: tensor.detach().float().cpu().abs().flatten() for name, tensor in values.items()}
    sizes = {name: found[found > 0] for name, found in sizes.items()}
    first, found = next(iter(sizes.items()))
    sentence = title or f"{lost(found):.0%} of the {first} are too small for float16"
    picture = Picture(sentence, height=3.6)
    counted, reaches = picture.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for (name, tensor), (color, look) in zip(sizes.items(), LINES, strict=False):
        _draw_sizes(counted, f"{name}: {lost(tensor):.1%} lost in float16", tensor, color, look[1:])
    counted.set(yticks=[], xlim=SHOWN, ylim=(0, 1.4))
    counted.set_ylabel("how many", fontsize=SMALL, color=QUIET_INK)
    counted.legend(loc="upper right", fontsize=SMALL, frameon=False)
    # Half of the smallest rounds to zero, what is above it to the smallest.
    counted.axvspan(SHOWN[0], smallest(torch.float16) - 1, color=PHASE_SHADE, zorder=0)
    for row, dtype in enumerate(FORMATS.values()):
        _draw_reach(reaches, row, dtype)
    reaches.set(ylim=(1.6, -0.6), yticks=range(len(FORMATS)), yticklabels=FORMATS)
    marks = range(*SHOWN, 10)
    reaches.set_xticks(marks, [f"$2^{{{mark}}}$" for mark in marks])
    reaches.tick_params(axis="y", length=0)
    for axes in (counted, reaches):
        axes.spines[["top", "right", "left"]].set_visible(False)
    write_title(
        counted, sentence, "grey: float16 makes 0 of it; bars below: the smallest number that is not 0, to the largest"
    )
    return picture


def lost(values: torch.Tensor) -> float:
    """Return the share of numbers that float16 rounds to zero."""
    return (values.to(torch.float16) == 0).float().mean().item()


def smallest(dtype: torch.dtype) -> float:
    """Return the power of two of the smallest number that is not 0, with the digits of which most are gone."""
    info = torch.finfo(dtype)
    return torch.tensor(info.smallest_normal * info.eps, dtype=torch.float64).log2().item()


def _draw_sizes(axes: Axes, name: str, values: torch.Tensor, color: str, style: str) -> None:
    powers = values.log2().clamp(*SHOWN)
    low, high = SHOWN
    counts = torch.histc(powers, bins=high - low, min=low, max=high)
    look: dict[str, Any] = {"color": color, "linestyle": style, "linewidth": 2}
    axes.step(range(low, high), (counts / counts.max()).tolist(), where="post", label=name, **look)


def _draw_reach(axes: Axes, row: int, dtype: torch.dtype) -> None:
    largest = torch.tensor(torch.finfo(dtype).max, dtype=torch.float64).log2().item()
    left, right = max(smallest(dtype), SHOWN[0]), min(largest, SHOWN[1])
    axes.barh(row, right - left, 0.7, left, color=INK, alpha=0.75)
    ends = f"$2^{{{smallest(dtype):.0f}}}$ to $2^{{{largest:.0f}}}$"
    axes.text((left + right) / 2, row, ends, color="white", ha="center", va="center", fontsize=SMALL)
