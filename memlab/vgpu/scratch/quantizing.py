"""Numbers rounded as if they were stored in 8 bits (``native/quantized/FakeQuantPer*Affine.cpp``)."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import reductions
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step

aten = torch.ops.aten


def _per_channel(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return (RESULT,) if given.zero_point.dtype.is_floating_point else (*_BOUNDS, -4, -4, RESULT)


def _learnable(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, out.numel()  # the mask, which backward does not take


def _learnable_per_channel(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    rounded = given.zero_point.nbytes
    whole = 4 * given.zero_point.numel()
    return rounded, whole, -rounded, *_BOUNDS, -4, -4, RESULT, out.numel()


def _learnable_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    each = torch.empty_like(given.self, device="meta")
    buffers = reductions.over(card, each, None, reductions.wide(each))
    return Result(0), each.nbytes, each.nbytes, Result(1), *buffers, Result(2), *buffers


def _learnable_per_channel_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    each = torch.empty_like(given.self, device="meta")
    others = [dim for dim in range(each.dim()) if dim != given.axis]
    buffers = reductions.over(card, each, others, reductions.wide(each))
    taken = (Result(0), each.nbytes, each.nbytes, Result(1), *buffers, Result(2), *buffers)
    return given.zero_point.nbytes, *_BOUNDS, *taken


_BOUNDS = (4, 4)  # the least and the greatest zero point, which are looked at
RULES: dict[object, Rule] = {
    aten.fake_quantize_per_channel_affine_cachemask: _per_channel,
    aten._fake_quantize_learnable_per_tensor_affine: _learnable,
    aten._fake_quantize_learnable_per_tensor_affine_backward: _learnable_backward,
    aten._fake_quantize_learnable_per_channel_affine: _learnable_per_channel,
    aten._fake_quantize_learnable_per_channel_affine_backward: _learnable_per_channel_backward,
}
