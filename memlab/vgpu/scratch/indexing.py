"""Writes through indices, and gradients of lookups: in both, CUDA sorts the indices first."""

from collections.abc import Iterable
from math import prod
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.internals import unset_fake_temporarily
from memlab.vgpu.scratch import cub
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step
from memlab.vgpu.scratch.sorting import launch
from memlab.vgpu.versions import TORCH

aten = torch.ops.aten
MASKS = (torch.bool, torch.uint8)
UNSORTED = 3072  # tokens of an embedding, whose gradients are added in one kernel


def _index(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    indices = [index for index in given.indices if index is not None]
    mask = _mask(indices)
    if mask is None:
        yield from _alike(indices)
    elif len(indices) == 1:
        place = next(place for place, index in enumerate(given.indices) if index is mask)
        yield from _of_mask(mask, out.shape[place])
    yield RESULT


def _index_put(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    tensor, value = given.self, given.values
    indices = [index for index in given.indices if index is not None]
    if not indices or not tensor.numel():
        return
    is_sorted = torch.are_deterministic_algorithms_enabled() and value.numel() > 1
    if is_sorted or given.accumulate:
        yield from sorted_first(card, tensor, given.indices, value)
        return
    mask = _mask(indices)
    if value.device.type == "cpu" and not value.dim() and (mask is None or _is_on_host(mask)):
        yield value.nbytes  # with a mask on the card that is masked_fill
    if mask is None:
        yield from _alike(indices)
    elif len(indices) == 1:
        yield from _of_mask(mask, _count(mask, value))


def sorted_first(card: Card, tensor: torch.Tensor, indices: list[Any], value: torch.Tensor) -> Iterable[Step]:
    """``index_put_with_sort_kernel``: what is written by sorted indices."""
    # Each index by its remainder and product (on the host, if it is there), their sum, a
    # copy to be sorted, positions to be sorted along, and positions to begin with (medium_128_fp32, IndexBackward0).
    mask = _mask(indices)
    if mask is not None:
        count = _count(mask, value)
        if not _is_on_host(mask):
            yield from _of_mask(mask, count)
        indices = [part for index in indices for part in (_positions(mask, count) if index is mask else (index,))]
    given = [index for index in indices if index is not None]
    shape = torch.broadcast_shapes(*(index.shape for index in given))
    if not prod(shape):
        return
    size = 8 * prod(shape)
    last = max(place for place, index in enumerate(indices) if index is not None)
    rows = prod(tensor.shape[: last + 1])
    buffer = cub.radix_sort(card, prod(shape), 8, 8, cub.bits_of(rows))
    widened = [2 * index.nbytes for index in given if index.dtype is torch.int32 and not _is_on_host(index)]
    yield from widened
    for place, index in enumerate(given):
        yield size
        if not _is_on_host(index):
            yield from (size, -size)
        if place:
            yield -size
    yield from (-size for size in widened)
    indexed = prod(tensor.shape[place] for place, index in enumerate(indices) if index is not None)
    count = prod(shape) * tensor.numel() // indexed
    if not (value.is_contiguous() and value.numel() == count):
        yield value.element_size() * count
    yield from (size, size, size, buffer, -buffer)


def _mask(indices: Iterable[Any]) -> torch.Tensor | None:
    return next((index for index in indices if index is not None and index.dtype in MASKS), None)


def _count(mask: torch.Tensor, value: torch.Tensor) -> int:
    """Return the number of true entries, as far as it is known: on the host, or by as many values."""
    if _is_on_host(mask):
        with unset_fake_temporarily():
            return int(mask.count_nonzero())
    return value.shape[0] if value.dim() else 0


def _of_mask(mask: torch.Tensor, count: int) -> Iterable[Step]:
    """``expandTensors`` (IndexingUtils.h): a mask becomes the positions where it is true, as nonzero gives them."""
    size = 8 * mask.dim() * count
    if not size:
        return ()
    return (size,) if _is_on_host(mask) else (4, 1, -1, size, -4)


def _positions(mask: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Their likes, one for each dimension of the mask."""
    one = torch.empty(1, dtype=torch.int64, device="cpu" if _is_on_host(mask) else "meta")
    return [one.expand(count)] * mask.dim()


def _alike(given: list[torch.Tensor]) -> Iterable[Step]:
    """``make_info`` and ``AdvancedIndex`` (TensorAdvancedIndexing.cpp): what is on the host is moved, int32 is widened.

    Several that do not lie in memory alike, as where they are expanded to a common shape, are made contiguous.
    """
    kept = []
    for index in given:
        if _is_on_host(index):
            yield index.nbytes
        if index.dtype is torch.int32:
            yield 2 * index.nbytes
            if _is_on_host(index):
                yield -index.nbytes
        kept.append(8 * index.numel() if _is_on_host(index) or index.dtype is torch.int32 else 0)
    made = (torch.empty_strided(index.shape, index.stride(), device="meta") for index in given)
    laid_out = torch.broadcast_tensors(*made)
    if len({index.stride() for index in laid_out}) == 1:
        return
    for index in laid_out:
        if not index.is_contiguous():
            yield 8 * index.numel()
    yield from (-size for size, index in zip(kept, laid_out, strict=True) if size and not index.is_contiguous())


def _is_on_host(index: torch.Tensor) -> bool:
    return index.device.type == "cpu"


def _embedding_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    tokens, scaled = given.indices, given.scale_grad_by_freq
    if tokens.numel() <= UNSORTED and not scaled:
        return ()
    return _sorted_sums(card, given.grad_output, tokens, given.num_weights, scaled)


def _sorted_sums(
    card: Card, gradient: torch.Tensor, tokens: torch.Tensor, rows: int, scaled: bool = False
) -> Iterable[Step]:
    """``embedding_dense_backward_cuda`` and ``embedding_backward_cuda_kernel``.

    Tokens are sorted, and the gradients of equal ones summed in parts of 10 rows.
    """
    count, width, index = tokens.numel(), gradient.shape[-1], tokens.element_size()
    size, segments = index * count, min(count, rows)
    bits = cub.bits_of(rows) if TORCH >= (2, 13) else 8 * index
    sort = cub.radix_sort(card, count, index, index, bits)
    if not gradient.is_contiguous():
        yield gradient.numel() * gradient.element_size()
    yield from (size, size, size, sort, -sort, -size)
    if scaled:
        runs = cub.running_sum(count, index)
        yield from (size, runs, -runs, runs, -runs)
    first, sums = cub.unique_by_key(card, count, index), cub.running_sum(segments, index)
    yield from (RESULT, size, 8, size, first, -first, -size)
    yield from (index * segments, index * segments, sums, -sums, 8)
    parts = count // 10 + segments
    yield index * parts
    # Few rows with many tokens each are summed by blocks of their own, which need to know whose part each is.
    few = segments * -(-width // 1024) < 4 * card.processors and count // 10 > 3 * rows
    yield index * parts if few else max(gradient.element_size(), 4) * parts * width


def _renorm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # embedding_renorm_cuda_: the indices are sorted, and each is kept once
    tokens = given.indices
    size = tokens.numel() * tokens.element_size()
    indices = 8 * tokens.numel()
    sort = launch(card, tokens.numel(), tokens.element_size(), 1)
    return size, size, indices, *sort, -indices, size, 8, cub.unique(tokens.numel())


def _bag_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # embedding_bag_backward_cuda_sum_avg; with weights for each token their gradient is another operator's
    if given.mode == 2 or not given.indices.numel():
        return ()
    return _sorted_sums(card, given.grad, given.indices, given.num_weights, given.scale_grad_by_freq)


def _bag(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _embedding_bag_cuda: sizes of the bags and the bag of each token, before the sums
    return Result(2), Result(1), RESULT


RULES: dict[object, Rule] = {
    aten.embedding_dense_backward: _embedding_backward,
    aten._embedding_bag_dense_backward: _bag_backward,
    aten._embedding_bag: _bag,
    aten._embedding_bag_forward_only: _bag,
    aten._embedding_bag_backward: _bag_backward,
    aten.embedding_renorm_: _renorm,
    aten.index: _index,
    aten.index_put_: _index_put,
    aten.index_put: _index_put,
    aten._index_put_impl_: _index_put,
}
