"""Writes through an index with deterministic algorithms: CUDA goes by ``index_put_``, which sorts it first."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.indexing import sorted_first
from memlab.vgpu.scratch.rule import Rule, Step

aten = torch.ops.aten


def _index_add(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # index_add_cuda_: of the source times a number
    if _is_asked_for(given.self):
        product = torch.empty(given.source.shape, dtype=given.source.dtype, device="meta")
        yield given.source.nbytes
        yield from _along(card, given.self, given.dim, len(given.index), product)


def _index_copy(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    if not _is_asked_for(given.self):
        return ()
    return _along(card, given.self, given.dim, len(given.index), given.source)


def _scatter(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _scatter_via_index_put: where all rows have the same index by that, else each number by its own
    tensor, dim, index, source = given.self, given.dim, given.index, given.get("src")
    if not _is_asked_for(tensor) or source is None:  # a number
        return ()
    others = [place for place in range(tensor.dim()) if place != dim % tensor.dim()]
    if all(index.stride(place) == 0 and index.shape[place] == tensor.shape[place] for place in others):
        return _along(card, tensor, dim, index.shape[dim], source)
    flat, count = torch.empty(tensor.numel(), dtype=tensor.dtype, device="meta"), index.numel()
    is_view = source.is_contiguous() and source.shape == index.shape
    return _along(card, flat, 0, count, flat[:count] if is_view else flat[:1].expand(count))


def _is_asked_for(tensor: torch.Tensor) -> bool:
    return torch.are_deterministic_algorithms_enabled() and tensor.dim() > 0


def _along(card: Card, tensor: torch.Tensor, dim: int, count: int, source: torch.Tensor) -> Iterable[Step]:
    """``index_put_`` at so many places of one dimension."""
    index = torch.empty(count, dtype=torch.int64, device="meta")
    return sorted_first(card, tensor, [*[None] * (dim % tensor.dim()), index], source)


RULES: dict[object, Rule] = {
    **dict.fromkeys((aten.index_add, aten.index_add_), _index_add),
    **dict.fromkeys((aten.index_copy, aten.index_copy_), _index_copy),
    **dict.fromkeys((aten.scatter, aten.scatter_, aten.scatter_add, aten.scatter_add_), _scatter),
}
