"""What is written by indices, and gradients of what was looked up: there indices are sorted first."""

from collections.abc import Iterable
from math import prod
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import cub
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step
from memlab.vgpu.scratch.sorting import launch
from memlab.vgpu.versions import TORCH

aten = torch.ops.aten
UNSORTED = 3072  # tokens of an embedding, whose gradients are added in one kernel


def _index_put(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    # index_put_with_sort_kernel: each index by its remainder and product, their sum, a copy to be sorted, positions to
    # be sorted along, and positions to begin with (medium_128_fp32, IndexBackward0).
    tensor, indices, accumulate = args[0], args[1], len(args) > 3 and args[3]
    given = [index for index in indices if index is not None]
    if not given or any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return ()
    if not accumulate:
        number = args[2]  # one of the host is copied first
        return (number.nbytes,) if number.device.type == "cpu" and not number.dim() else ()
    shape = torch.broadcast_shapes(*(index.shape for index in given))
    if not prod(shape) or not tensor.numel():
        return ()
    size = 8 * prod(shape)
    last = max(place for place, index in enumerate(indices) if index is not None)
    rows = prod(tensor.shape[: last + 1])
    buffer = cub.radix_sort(card, prod(shape), 8, 8, cub.bits_of(rows))
    steps: list[Step] = []
    for place, _ in enumerate(given):
        steps += [size, size, -size] if place == 0 else [size, size, -size, -size]
    indexed = prod(tensor.shape[place] for place, index in enumerate(indices) if index is not None)
    value = args[2].element_size() * prod(shape) * tensor.numel() // indexed
    expanded = () if args[2].is_contiguous() and args[2].dim() else (value,)
    return *steps, *expanded, size, size, size, buffer, -buffer


def _index(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    # expandTensors (IndexingUtils.h): a mask becomes the positions where it is true, as nonzero gives them
    places = [(place, mask) for place, mask in enumerate(args[1]) if mask is not None]
    if len(places) != 1 or places[0][1].dtype not in (torch.bool, torch.uint8):
        return ()
    place, mask = places[0]
    return 4, 1, -1, 8 * mask.dim() * out.shape[place], -4, RESULT


def _embedding_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    gradient, tokens, rows, _, scaled = args[:5]
    if tokens.numel() <= UNSORTED and not scaled:
        return ()
    return _sorted_sums(card, gradient, tokens, rows, scaled)


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
        runs = cub.runs(card, count, index)
        yield from (size, runs, -runs, runs, -runs)
    first, sums = cub.unique_by_key(card, count, index), cub.running_sum(segments, index)
    yield from (RESULT, size, 8, size, first, -first, -size)
    yield from (index * segments, index * segments, sums, -sums, 8)
    parts = count // 10 + segments
    yield index * parts
    # Few rows with many tokens each are summed by blocks of their own, which need to know whose part each is.
    few = segments * -(-width // 1024) < 4 * card.processors and count // 10 > 3 * rows
    yield index * parts if few else max(gradient.element_size(), 4) * parts * width


def _renorm(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    # embedding_renorm_cuda_: the indices are sorted, and each is kept once
    tokens = args[1]
    size = tokens.numel() * tokens.element_size()
    indices = 8 * tokens.numel()
    sort = launch(card, tokens.numel(), tokens.element_size(), 1)
    return size, size, indices, *sort, -indices, size, 8, cub.unique(tokens.numel())


def _bag_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    # embedding_bag_backward_cuda_sum_avg; with weights for each token their gradient is another operator's
    gradient, tokens, rows, scaled, mode = args[0], args[1], args[6], args[7], args[8]
    if mode == 2 or not tokens.numel():
        return ()
    return _sorted_sums(card, gradient, tokens, rows, scaled)


def _bag(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
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
