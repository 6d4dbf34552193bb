"""Fused attention."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.rule import Rule

aten = torch.ops.aten


def _flash_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # mha_bwd: the sums of softmax's backward, and a float32 gradient of the queries; with fewer key heads than query
    # heads, gradients of keys and values for each query head.
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    length = -(-length // 128) * 128
    padded = -(-width // 32) * 32 if width <= 192 else 256
    sizes = [4 * batch * heads * length, 4 * batch * heads * length * padded]
    if key.shape[1] != heads:
        sizes += [query.element_size() * batch * heads * key.shape[2] * width] * 2
    return sizes


def _efficient_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # _efficient_attention_backward: in float32 the product of result and gradient, and its row sums; in half
    # precision the kernel makes the sums itself, but needs a float32 gradient of the queries.
    query, result = args[1], args[5]
    batch, heads, length, width = query.shape
    sums = 4 * batch * heads * length
    if query.dtype is torch.float32:
        return (4 * result.numel(), sums)
    return (sums, 4 * batch * heads * (-(-length // 64) * 64) * width)


RULES: dict[object, Rule] = {
    aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
}
