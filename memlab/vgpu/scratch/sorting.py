"""Sorting, and what is found by it."""

from collections.abc import Iterable
from math import ceil, log, log2
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import cub
from memlab.vgpu.scratch.rule import RESULT, Rule, Step

aten = torch.ops.aten
SMALL = 4096  # elements that one block of threads sorts in place
MANY = 128  # segments that CUB sorts each by itself


def _sort(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    # sort_stable_kernel: a short dimension is sorted in its results, with the positions to begin with beside them.
    tensor = args[0]
    count, width = tensor.numel(), tensor.element_size()
    if tensor.dim() == 0 or count == 0:
        return ()
    dim = _dim(args)
    length = tensor.shape[dim]
    # Another dimension than the fastest: the input and both results are laid out anew.
    whole = tensor.is_contiguous() and tensor.stride(dim) == 1
    copies = () if whole or length <= SMALL else (width * count, width * count, 8 * count)
    return *copies, *launch(card, count, width, count // length)


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


def _dim(args: tuple[Any, ...]) -> int:
    """The dimension, of ``sort(self, dim, descending)`` or ``sort(self, stable, dim, descending)``."""
    numbers = [arg for arg in args[1:] if type(arg) is int]
    return numbers[0] if numbers else -1


def _randperm(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    # randperm_out_cuda: random keys, of so many bits that they rarely meet, are sorted with the numbers.
    count, width = args[0], out.element_size()
    if count < 2:
        return ()
    bits = min(64, ceil(log2(count - (6 * count**2 + 1) / (12 * log(0.9)))))
    key = 4 if bits <= 32 else 8
    buffer = cub.radix_sort(card, count, key, width, bits)
    return RESULT, 8, -8, width * count, key * count, key * count, buffer, -buffer


def _median(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    # median_impl, of all: the one in the middle once they are sorted
    if isinstance(out, tuple | list):
        return ()
    count, width = args[0].numel(), args[0].element_size()
    return width * count, 8 * count, *launch(card, count, width, 1), -8 * count, 1, RESULT


RULES: dict[object, Rule] = {
    aten.sort: _sort,
    aten.median: _median,
    aten.nanmedian: _median,
    aten.randperm: _randperm,
}
