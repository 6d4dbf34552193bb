"""Fourier transforms: cuFFT wants the dimensions that stay as one (``native/cuda/SpectralOps.cpp``)."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.rule import RESULT, Rule, Step

aten = torch.ops.aten
MOST_DIMS = 3  # of one transform


class _Layout:
    """Sizes and strides of what is transformed next; ``width`` is the bytes of a number."""

    def __init__(self, sizes: Sequence[int], strides: Sequence[int], width: int):
        self.sizes, self.strides, self.width = tuple(sizes), tuple(strides), width

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "_Layout":
        return cls(tensor.shape, tensor.stride(), tensor.element_size())

    def contiguous(self, order: Sequence[int] | None = None) -> "_Layout":
        """The same, its dimensions one in the other in this order."""
        order = range(len(self.sizes)) if order is None else order
        strides = [0] * len(self.sizes)
        for place, dim in enumerate(order):
            strides[dim] = prod(self.sizes[inner] for inner in order[place + 1 :])
        return _Layout(self.sizes, strides, self.width)

    def batch(self, dims: Sequence[int]) -> list[int]:
        """The dimensions that stay, the outermost first."""
        return sorted(set(range(len(self.sizes))) - set(dims), key=lambda dim: -self.strides[dim])

    def copy(self, dims: Sequence[int]) -> list[int]:
        """Bytes of the copy for ``_exec_fft``, none where a view will do."""
        batch = [dim for dim in self.batch(dims) if self.sizes[dim] != 1]
        if all(self.strides[outer] == self.strides[inner] * self.sizes[inner] for outer, inner in pairwise(batch)):
            return []
        return [self.width * prod(self.sizes)]


def _at_once(dims: Sequence[int]) -> bool:
    return len(dims) <= MOST_DIMS and list(dims[:2]) != [0, 1]  # use_optimized_cufft_path


def _complex(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    tensor, dims = given.self, given.dim  # _fft_c2c_cufft
    return (RESULT, *_Layout.of(tensor).copy(dims)) if 0 < len(dims) <= MOST_DIMS else ()


def _from_real(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    tensor, dims = given.self, given.dim  # _fft_r2c_cufft
    layout, last = _Layout.of(tensor), dims[-1]
    aligned = []
    if tensor.storage_offset() % 2:  # as if it were complex
        order = [dim for dim in range(tensor.dim()) if dim != last]
        layout, aligned = layout.contiguous([*order, last]), [tensor.nbytes]
    if _at_once(dims):
        return RESULT, *aligned, *layout.copy(dims)
    first = _Layout(out.shape, out.stride(), out.element_size()).contiguous([*layout.batch([last]), last])
    copy = [*aligned, *layout.copy([last])]
    return out.nbytes, *copy, *(-size for size in copy[::-1]), RESULT, *first.copy(dims[:-1])


def _to_real(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    tensor, dims = given.self, given.dim  # _fft_c2r_cufft: cuFFT destroys its input
    layout, clone = _Layout.of(tensor), tensor.nbytes
    if _at_once(dims):
        return RESULT, clone, *layout.contiguous().copy(dims)
    *others, last = dims
    copy = layout.copy(others)
    between = layout.contiguous([*layout.batch(others), *others])
    return RESULT, clone, *copy, *(-size for size in copy), *between.copy([last])


RULES: dict[object, Rule] = {aten._fft_c2c: _complex, aten._fft_r2c: _from_real, aten._fft_c2r: _to_real}
