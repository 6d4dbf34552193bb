"""The arguments of ``aten.convolution`` and of its backward, and the switches of ``torch.backends.cudnn``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions.views import View

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Settings:
    """The arguments of a convolution other than its tensors, for two or three spatial dimensions.

    Signals are images of one row, as ATen takes them (``view1d_as_2d``).
    """

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    output_padding: Sizes
    groups: int
    cudnn: bool
    bf16: bool
    tf32: bool
    deterministic: bool
    benchmark: bool


def forward_arguments(card: Card, args: Sequence[Any]) -> tuple[View, View, Settings]:
    """Input, weight and settings."""
    return View.of(args[0]), View.of(args[1]), _settings(card, args[3:9], args[1].dim() - 2)


def backward_arguments(card: Card, args: Sequence[Any]) -> tuple[View, View, View, Settings]:
    """Gradient of the result, input, weight and settings."""
    grad, x, w = (View.of(tensor) for tensor in args[:3])
    return grad, x, w, _settings(card, args[4:10], args[2].dim() - 2)


def _settings(card: Card, args: Sequence[Any], dims: int) -> Settings:
    stride, padding, dilation, transposed, output_padding, groups = args
    switches = torch.backends.cudnn

    def each(sizes: Sequence[int], before: int) -> Sizes:  # expand_param_if_needed
        sizes = tuple(sizes) * dims if len(sizes) == 1 else tuple(sizes)
        return (before, *sizes) if dims == 1 else sizes

    return Settings(
        each(stride, 1),
        each(padding, 0),
        each(dilation, 1),
        transposed,
        each(output_padding, 0),
        groups,
        switches.enabled,
        card.bf16,
        switches.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        switches.deterministic or torch.are_deterministic_algorithms_enabled(),
        switches.benchmark,
    )
