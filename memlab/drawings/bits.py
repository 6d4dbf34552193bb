"""The bytes that a stored weight takes in several formats, with what each format stores beside the weights."""

from collections.abc import Mapping
from typing import Any

import torch

from memlab.drawings.bars import ROW, frame_bars
from memlab.palette import BLUE, INK, ORANGE, PURPLE, YELLOW
from memlab.plots import SMALL, Picture, draw_legend, write_title

COLORS = (BLUE, ORANGE, PURPLE, YELLOW)


def bits(stored: Mapping[str, Mapping[str, torch.Tensor]], *, weights: int, title: str) -> Picture:
    """Draw how many bytes each format takes for a weight, part by part, and write how many bits that is.

    Args:
        stored: by the name of a format, the tensors that it stores, by what they are.
        weights: how many weights each format stores.
        title: the sentence that says the same.
    """
    found = {name: bytes_of(tensors, weights) for name, tensors in stored.items()}
    kinds = list(dict.fromkeys(kind for parts in found.values() for kind in parts))
    picture = Picture(title, height=1.5 + ROW * len(found))
    axes = picture.add_subplot()
    look: dict[str, Any] = {"fontsize": SMALL, "va": "center", "color": INK}
    for row, parts in enumerate(found.values()):
        end = 0.0
        for kind, count in parts.items():
            axes.barh(row, count, 0.7, end, color=COLORS[kinds.index(kind)], alpha=0.85)
            end += count
        axes.text(end + 0.05, row, f"{end:.3g} bytes, {8 * end:.4g} bits", **look)
    for kind, color in zip(kinds, COLORS, strict=False):
        axes.barh(0, 0, color=color, alpha=0.85, label=kind)
    frame_bars(axes, found, max(sum(parts.values()) for parts in found.values()))
    write_title(axes, title, f"bytes stored for each of {weights:,} weights")
    draw_legend(picture)
    return picture


def bytes_of(tensors: Mapping[str, torch.Tensor], weights: int) -> dict[str, float]:
    """Return the bytes for each weight, by what a format stores."""
    return {kind: tensor.nbytes / weights for kind, tensor in tensors.items()}
