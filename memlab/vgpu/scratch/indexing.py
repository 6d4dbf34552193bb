"""Gradients of what was looked up: indices are sorted first."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.rule import Rule

aten = torch.ops.aten


def _index_put(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # medium_128_fp32, IndexBackward0: the linear index (a remainder and a product), its sorted copy, the positions
    # sorted along, the positions themselves, and a byte for the sort.
    indices, accumulate = args[1], len(args) > 3 and args[3]
    if not accumulate:
        return ()
    count = max(index.numel() for index in indices if index is not None)
    return (*[8 * count] * 5, 1)


def _embedding_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # embedding_dense_backward_cuda and embedding_backward_cuda_kernel: more than 3072 tokens are sorted, and
    # the gradients of equal ones summed in parts of 10 rows.
    gradient, tokens, rows = args[:3]
    count, width = tokens.numel(), gradient.shape[-1]
    if count <= 3072:
        return ()
    segments = min(count, rows)
    parts = count // 10 + segments
    index = tokens.element_size()
    widest = max(gradient.element_size(), 4)
    return (*[index * count] * 4, *[index * segments] * 2, index * parts, widest * parts * width)


RULES: dict[object, Rule] = {
    aten.embedding_dense_backward: _embedding_backward,
    aten.index_put_: _index_put,
    aten.index_put: _index_put,
    aten._index_put_impl_: _index_put,
}
