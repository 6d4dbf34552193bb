"""Sorting, and what is found by it."""

from collections.abc import Iterable, Sequence
from math import ceil, log, log2
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import cub
from memlab.vgpu.scratch.laid_out import copies, flattened
from memlab.vgpu.scratch.rule import RESULT, Rule, Step

aten = torch.ops.aten
FUSED = 2048  # elements whose mode one block of threads finds
SHARED = (
    (20, 20_000),
    (40, 10_000),
    (80, 8000),
    (199, 5000),
    (799, 3000),
    (4000, 800),
)  # rows at most, and their length
SMALL = 4096  # elements that one block of threads sorts in place
MANY = 128  # segments that CUB sorts each by itself


def _sort(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return _sorted(card, given.self, given.dim, out)


def _sorted(card: Card, tensor: torch.Tensor, dim: int, out: Sequence[torch.Tensor]) -> Iterable[Step]:
    """``sort_stable_kernel``: a short dimension is sorted in its results, with the positions to begin with beside them.

    For a long one the input is copied if that dimension is not the fastest, and results that lie in another way are
    too.
    """
    count, width = tensor.numel(), tensor.element_size()
    if tensor.dim() == 0 or count == 0:
        return
    length = tensor.shape[dim]
    strides = _fastest(tensor, dim)
    if length > SMALL and not _has(tensor, strides):
        yield tensor.nbytes
        yield from (result.nbytes for result in out if not _has(result, strides))
    yield from launch(card, count, width, count // length)


def _fastest(tensor: torch.Tensor, dim: int) -> tuple[int, ...]:
    """``infer_dense_strides_dim_last``: without gaps in the order that there is, but for the dimension."""
    places = sorted(range(tensor.dim()), key=lambda place: -1 if place == dim % tensor.dim() else tensor.stride(place))
    strides, step = [0] * tensor.dim(), 1
    for place in places:
        strides[place], step = step, step * tensor.shape[place]
    return tuple(strides)


def _has(tensor: torch.Tensor, strides: tuple[int, ...]) -> bool:
    found = zip(tensor.shape, tensor.stride(), strict=True)
    return all(size == 1 or one == other for (size, one), other in zip(found, strides, strict=True))


def _topk(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, *largest(card, given.self, out, given.dim, given.sorted)


def largest(
    card: Card, tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int = -1, ordered: bool = True
) -> Iterable[Step]:
    """``structured_topk_out_cuda``: the largest of a contiguous copy, and then those sorted.

    From long rows many blocks of threads choose together, each of which counts the digits that it sees (``mbtopk``).
    """
    values, positions = out
    taken = copies(tensor)
    yield from taken
    if tensor.numel() and tensor.dim() and values.numel():
        width, length = tensor.element_size(), tensor.shape[dim]
        rows = tensor.numel() // length
        if length >= _shared(rows):
            each = 256 * max(4, min(64, -(-tensor.numel() // (card.processors * 6 * 256))))
            blocks = rows * -(-length // each)
            scan = cub.aliased(16 * (1 + cub.PADDING), 1)
            found = [width * rows, 8 * rows, 2 * max(4, width) * rows]
            counts = [*found, 512 * blocks, 1024 * rows, 4 * blocks, 4 * blocks]
            yield from (*counts, scan, -scan, scan, -scan)
            taken += counts
    yield from (-size for size in reversed(taken))
    if ordered and tensor.dim() and values.shape[dim] > SMALL:
        yield from (positions.nbytes, values.nbytes, *_sorted(card, values, dim, out))
        yield from (positions.nbytes, -positions.nbytes)


def _shared(rows: int) -> int:
    """From which length on ``should_use_multiblock`` says so."""
    return next((least for most, least in SHARED if rows <= most), 400)


def launch(card: Card, count: int, width: int, segments: int) -> Iterable[Step]:
    """``launch_stable_sort_kernel``, of neighbours in memory.

    Short segments are sorted by a block of threads each; a long one alone; a few by value, and then stably by segment;
    many at once.
    """
    length = count // segments
    if length <= SMALL:
        return 8 * length, -8 * length
    if segments == 1:
        buffer = cub.radix_sort(card, count, width, 8, 8 * width)
        return 8 * count, buffer, -buffer, -8 * count
    if segments >= MANY:
        buffer = cub.aliased(count * width, count * 8)
        return 8 * count, buffer, -buffer, -8 * count
    first = cub.radix_sort(card, count, width, 8, 8 * width)
    second = cub.radix_sort(card, count, 8, 0, cub.bits_of(segments))
    taken = (8 * count, 8 * count, width * count)
    return *taken, first, -first, -width * count, second, -second, -8 * count, -8 * count


def _randperm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # randperm_out_cuda: random keys, of so many bits that they rarely meet, are sorted with the numbers.
    count, width = given.n, out.element_size()
    if count < 2:
        return ()
    bits = min(64, ceil(log2(count - (6 * count**2 + 1) / (12 * log(0.9)))))
    key = 4 if bits <= 32 else 8
    buffer = cub.radix_sort(card, count, key, width, bits)
    return RESULT, 8, -8, width * count, key * count, key * count, buffer, -buffer


def _median(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # median_with_indices_impl takes it contiguous; median_impl, of all: the one in the middle once they are sorted
    tensor = given.self
    if isinstance(out, tuple | list):
        return *copies(tensor), RESULT
    count, width = tensor.numel(), tensor.element_size()
    copy = flattened(tensor)
    apart = [] if copy or tensor.is_contiguous() else [tensor.nbytes]  # a view of one dimension, with gaps
    back = (-size for size in (*copy, *apart))
    return *copy, width * count, 8 * count, *apart, *launch(card, count, width, 1), -8 * count, *back, 1, RESULT


def _mode(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # mode_kernel_impl: with the dimension as the last; a long one is sorted, which a copy is for (apply_mode)
    tensor, dim = given.self, given.dim
    if tensor.dim() == 0:
        return
    yield RESULT
    length, width = tensor.shape[dim], tensor.element_size()
    if length <= FUSED:
        shape, strides = list(tensor.shape), list(tensor.stride())
        for of in (shape, strides):
            of[dim], of[-1] = of[-1], of[dim]
        yield from copies(torch.empty_strided(shape, strides, dtype=tensor.dtype, device="meta"))
        return
    buffer = cub.radix_sort(card, length, width, 8, 8 * width)
    yield from (tensor.nbytes, 8 * length, buffer, -buffer)


RULES: dict[object, Rule] = {
    aten.sort: _sort,
    aten.topk: _topk,
    aten.median: _median,
    aten.nanmedian: _median,
    aten.mode: _mode,
    aten.randperm: _randperm,
}
