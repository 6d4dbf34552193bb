"""Frozen weights in four bits: NF4, the format of QLoRA (Dettmers et al. 2023), with the packed weight kept alone."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from memlab.errors import BadValue

BLOCK = 64  # weights that share a scale
EDGE = 0.9677083  # of the outermost quantile: with 1, it would be infinite


def _levels() -> torch.Tensor:
    quantile = torch.special.ndtri  # of the standard normal distribution
    above = quantile(torch.linspace(0.5, EDGE, 9)[1:])
    below = -quantile(torch.linspace(0.5, EDGE, 8)[1:])
    return torch.cat([below.flip(0), torch.zeros(1), above]) / above[-1]


LEVELS = _levels()  # quantiles of a normal distribution, scaled to -1 to 1; one is 0
PAIRS = torch.cartesian_prod(LEVELS, LEVELS)  # of a byte: the number of its high four bits, and of its low four


def pack(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two weights to a byte, uint8 of shape ``(blocks, 32)``, and the scales, ``(blocks, 1)``.

    Args:
        weight: its number of elements is a multiple of 64. A block of zeros stays one.

    Raises:
        BadValue: the number of weights is not a multiple of 64.
    """
    if weight.numel() % BLOCK:
        raise BadValue(f"{weight.numel()} weights cannot be packed: their number must be a multiple of {BLOCK}.")
    blocks = weight.detach().reshape(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    between = ((LEVELS[1:] + LEVELS[:-1]) / 2).to(weight)
    nearest = torch.bucketize(blocks / scales, between, out_int32=True).to(torch.uint8)
    return nearest[:, ::2] * 16 + nearest[:, 1::2], scales


def unpack(packed: torch.Tensor, scales: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """Return the weights that :func:`pack` packed, each rounded to a level: ``(blocks, 64)``, in the type of scales.

    Args:
        packed, scales: from :func:`pack`.
        pairs: ``PAIRS``, on their device and in the type of scales.
    """
    return pairs[packed.int()].view(-1, BLOCK) * scales


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, shape: torch.Size, *stored: torch.Tensor
    ) -> torch.Tensor:
        ctx.shape = shape
        ctx.save_for_backward(*stored)  # four bits a weight, where F.linear would keep sixteen
        return F.linear(x, unpack(*stored).view(shape), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        return gradient @ unpack(*ctx.saved_tensors).view(ctx.shape), None, None, None, None, None


class NF4Linear(nn.Module):
    """A frozen Linear that keeps its weight in four bits, and dequantizes it in forward and again in backward.

    Args:
        linear: is packed, and not kept. A bias stays as it is.

    Raises:
        BadValue: its weights are no multiple of 64.
    """

    packed: torch.Tensor
    scales: torch.Tensor
    pairs: torch.Tensor
    bias: torch.Tensor | None
    shape: torch.Size

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.shape = linear.weight.shape
        self.out_features, self.in_features = self.shape
        packed, scales = pack(linear.weight)
        self.register_buffer("packed", packed)
        self.register_buffer("scales", scales)
        self.register_buffer("pairs", PAIRS.to(scales))
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(..., in_features)`` to ``(..., out_features)``."""
        stored = self.packed, self.scales, self.pairs
        result: torch.Tensor = _Product.apply(x, self.bias, self.shape, *stored)  # type: ignore[no-untyped-call]
        return result
