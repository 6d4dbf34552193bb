"""The arguments of ``aten.convolution`` and of its backward, and the switches of ``torch.backends.cudnn``."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from memlab.vgpu.arguments import Arguments
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


def forward_arguments(card: Card, given: Arguments) -> tuple[View, View, Settings]:
    """Input, weight and settings."""
    return View.of(given.input), View.of(given.weight), _settings(card, given)


def backward_arguments(card: Card, given: Arguments) -> tuple[View, View, View, Settings]:
    """Gradient of the result, input, weight and settings."""
    return View.of(given.grad_output), *forward_arguments(card, given)


def _settings(card: Card, given: Arguments) -> Settings:
    switches, dims = torch.backends.cudnn, given.weight.dim() - 2

    def each(sizes: Sequence[int], before: int) -> Sizes:  # expand_param_if_needed
        sizes = tuple(sizes) * dims if len(sizes) == 1 else tuple(sizes)
        return (before, *sizes) if dims == 1 else sizes

    return Settings(
        each(given.stride, 1),
        each(given.padding, 0),
        each(given.dilation, 1),
        given.transposed,
        each(given.output_padding, 0),
        given.groups,
        switches.enabled,
        card.bf16,
        switches.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        switches.deterministic or torch.are_deterministic_algorithms_enabled(),
        switches.benchmark,
    )
