"""Run a stack of layers, keeping only every few inputs for backward."""

from collections.abc import Callable, Iterable

import torch
from torch.utils.checkpoint import checkpoint

from memlab.errors import BadValue

Layer = Callable[[torch.Tensor], torch.Tensor]


def run_layers(layers: Iterable[Layer], x: torch.Tensor, checkpoint_every: int = 0) -> torch.Tensor:
    """``layers`` one after the other on ``x``.

    Args:
        layers: each takes and gives a tensor.
        x: the input of the first.
        checkpoint_every: 0 keeps every activation for backward. k > 0 keeps the input of every k-th layer
            only; backward runs the k layers in between again to get back the rest.

    Raises:
        BadValue: ``checkpoint_every`` is not a whole number from 0 on.
    """
    if not isinstance(checkpoint_every, int) or checkpoint_every < 0:
        raise BadValue(f"checkpoint_every={checkpoint_every!r} is not a spacing: give 0 (off) or a number of layers.")
    layers = list(layers)
    if not checkpoint_every:
        return _chain(layers, x)
    for first in range(0, len(layers), checkpoint_every):
        x = checkpoint(_chain, layers[first : first + checkpoint_every], x, use_reentrant=False)
    return x


def _chain(layers: list[Layer], x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x)
    return x
