"""Shape and strides of a tensor, which are all that the rules look at."""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class View:
    """A tensor's place in its storage.

    Attributes:
        shape: sizes.
        strides: elements from one to the next in each dimension.
        dtype: of an element.
        offset: elements from the beginning of the storage, which is aligned to 512 bytes.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int = 0

    @classmethod
    def of(cls, tensor: Tensor) -> "View":
        """Of this tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.storage_offset())  # type: ignore[arg-type]

    def stride(self) -> tuple[int, ...]:
        """As of a tensor."""
        return self.strides

    def dim(self) -> int:
        """As of a tensor."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Of its elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def alignment(self) -> int:
        """Bytes that its address is a multiple of, at most 32 (``getAlignment`` of ``Conv_v8.cpp``)."""
        return min(32, (self.offset * self.dtype.itemsize & -self.offset * self.dtype.itemsize) or 32)

    def as_images(self) -> "View":
        """Signals as images of one row (``view4d`` of ``Convolution.cpp``); anything else as it is."""
        if len(self.shape) != 3:
            return self
        (batch, channels, length), strides = self.shape, self.strides
        between = strides[2] * length
        return View((batch, channels, 1, length), (*strides[:2], between, strides[2]), self.dtype, self.offset)

    @cached_property
    def is_channels_last(self) -> bool:
        """True if ``suggest_memory_format`` says channels last: ``is_channels_last_strides_2d`` and ``_3d`` of c10."""
        if len(self.shape) not in (4, 5) or self.strides[1] == 0:
            return False
        least = 0
        for axis in (1, *range(len(self.shape) - 1, 1, -1), 0):
            size, stride = self.shape[axis], self.strides[axis]
            if size == 0 or stride < least or (axis == 0 and least == self.strides[1]):
                return False
            least = stride * max(size, 1)
        return True

    def has_format(self, channels_last: bool) -> bool:
        """Return True if the view is contiguous in that memory format."""
        wanted = dense_strides(self.shape, channels_last)
        return all(size == 1 or one == other for size, one, other in zip(self.shape, self.strides, wanted, strict=True))

    def in_format(self, channels_last: bool) -> "View":
        """Itself, or a copy in that memory format."""
        if self.has_format(channels_last):
            return self
        return View(self.shape, dense_strides(self.shape, channels_last), self.dtype)


def dense_strides(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    """Of a new tensor."""
    order = [0, *range(2, len(shape)), 1] if channels_last else range(len(shape))
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)
