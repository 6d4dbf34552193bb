"""A drawing of a chain of layers: the tensors that autograd keeps for backward, and the layers that work in place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from memlab.drawings.boxes import address, draw_box
from memlab.palette import INK
from memlab.plots import SMALL, Picture, write_title

ROW = 0.78  # inches
STEP = 2.0  # from one tensor to the next; a box is 1 wide


@dataclass(frozen=True)
class Chain:
    """The tensors of one chain of layers that are as large as the first, and which of them autograd keeps.

    Attributes:
        memories: which memory each tensor lies in, from the input to the last output, by number.
        kept: the memories that backward will read.
        copies: the layers that keep a copy of their own.
    """

    memories: tuple[int, ...]
    kept: frozenset[int]
    copies: frozenset[int]

    @property
    def count(self) -> int:
        """Number of tensors that stay until backward; the last output counts only if a layer of the chain keeps it."""
        return len(self.kept) + len(self.copies)


def kept(chains: Mapping[str, nn.Sequential], x: torch.Tensor, *, title: str) -> Picture:
    """Run each chain on ``x`` and draw its tensors: filled, if autograd keeps them for backward.

    A layer that works in place has one box in the place of two: its input and its output are one memory.

    Args:
        chains: layers whose outputs have the shape of ``x``, by the name to write before each.
        x: the input, of any shape; a clone is used.
        title: the sentence that says the same.
    """
    found = {name: chain_of(layers, x) for name, layers in chains.items()}
    picture = Picture(title, height=1.1 + ROW * len(found))
    axes = picture.add_subplot()
    for row, (name, layers) in enumerate(chains.items()):
        _draw_chain(axes, row, layers, found[name])
        axes.text(-0.7, row, name, ha="right", va="center", fontsize=SMALL, color=INK)
        end = STEP * len(layers) + 0.9
        axes.text(end, row, f"keeps {found[name].count}", va="center", fontsize=SMALL, color=INK, fontweight="bold")
    longest = max(map(len, chains.values()))
    axes.set(xlim=(-3.0, STEP * longest + 2.3), ylim=(len(found) - 0.45, -0.6), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    write_title(axes, title, "a box is a tensor, filled if autograd keeps it until backward; run just now")
    return picture


def chain_of(layers: nn.Sequential, x: torch.Tensor) -> Chain:
    """Run a chain, and return which of its tensors autograd keeps."""
    saved: list[tuple[int, torch.Tensor]] = []
    place = 0

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append((place, tensor))
        return tensor

    first = x.detach().clone().requires_grad_() + 0  # no leaf, so the first layer may work in place
    tensors = [first]
    with saved_tensors_hooks(note, lambda tensor: tensor):
        for place, layer in enumerate(layers):  # noqa: B007 (note reads it)
            tensors.append(layer(tensors[-1]))
    numbers: dict[int, int] = {}
    memories = tuple(numbers.setdefault(address(tensor), len(numbers)) for tensor in tensors)
    large = [(at, address(tensor)) for at, tensor in saved if tensor.shape == x.shape]
    own = {at for at, address in large if address not in numbers}
    return Chain(memories, frozenset(numbers[a] for _, a in large if a in numbers), frozenset(own))


def _draw_chain(axes: Axes, row: int, layers: nn.Sequential, chain: Chain) -> None:
    for memory in range(max(chain.memories) + 1):
        places = [place for place, one in enumerate(chain.memories) if one == memory]
        draw_box(axes, STEP * places[0] - 0.5, STEP * places[-1] + 0.5, row, is_kept=memory in chain.kept, height=0.44)
    for place, layer in enumerate(layers):
        middle = STEP * (place + 0.5)
        is_in_place = chain.memories[place] == chain.memories[place + 1]
        if not is_in_place:
            arrow = {"arrowstyle": "->", "color": INK, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (middle + 0.48, row), (middle - 0.48, row), arrowprops=arrow)
        name = type(layer).__name__.removesuffix("2d").replace("BatchNorm", "BN")
        color = "white" if is_in_place and chain.memories[place] in chain.kept else INK
        height = row if is_in_place else row - 0.26
        look: dict[str, Any] = {"ha": "center", "fontsize": SMALL - 1, "color": color}
        axes.text(middle, height, name, va="center" if is_in_place else "bottom", **look)
        if place in chain.copies:
            draw_box(axes, middle - 0.42, middle + 0.42, row + 0.33, height=0.2, is_kept=True)
            look["color"] = "white"
            axes.text(middle, row + 0.33, "copy", va="center", **look | {"fontsize": SMALL - 2})
