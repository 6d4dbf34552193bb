"""CUDA's division of a reduction (sum, mean, max, norm) among thread blocks, and the buffer that it takes.

Where several blocks work on one output they meet in global memory: a buffer of partial results and a counter
for every group of blocks. The rules are those of ``setReduceConfig`` in PyTorch's ``ATen/native/cuda/Reduce.cuh``; the
trace ``cold_200_amp`` shows them 27 times (8,388,608 and 16 bytes for the gradient of 512 weights over 2,000 rows).
"""

from collections.abc import Sequence
from math import prod
from typing import Protocol

MAX_THREADS = 512
WARP = 32
VECTOR = 4
MIN_PER_THREAD, MAX_PER_THREAD = 16, 256


class Strided(Protocol):
    """Shape and strides, as of a tensor."""

    @property
    def shape(self) -> Sequence[int]: ...
    def stride(self) -> Sequence[int]: ...
    def dim(self) -> int: ...


def buffers(
    tensor: Strided, dims: Sequence[int] | None, element: int, processors: int, threads: int, offset: int = 0
) -> tuple[int, ...]:
    """Bytes of the two buffers of a reduction, or () where no output is shared among blocks.

    Args:
        tensor: what is reduced.
        dims: the dimensions that are reduced, all of them where it is None or empty.
        element: bytes of one partial result.
        processors: multiprocessors of the card.
        threads: threads that one multiprocessor can hold.
        offset: where the tensor begins in its storage, in elements.
    """
    reduced, kept = _iterated(tensor, dims)
    outputs = prod(size for size, _ in kept)
    inputs = prod(size for size, _ in reduced)
    if not outputs or inputs <= MAX_PER_THREAD:
        return ()
    along_fastest = not kept or reduced[0][1] < kept[0][1]
    dim0, dim1 = (inputs, outputs) if along_fastest else (outputs, inputs)
    vector = 1
    if (reduced if along_fastest else kept)[0][1] == 1:
        if not along_fastest:
            vector = _vector(reduced, kept, offset)
            dim0 //= vector
        elif dim0 > 128 and len(reduced) == 1 and not kept:
            dim0 //= VECTOR

    most = MAX_THREADS // vector
    width2, height2 = _power(dim0, most), _power(dim1, most)
    width = min(width2, WARP)
    height = min(height2, most // width)
    width = min(width2, most // height)
    step_in, step_out = (width, 1) if along_fastest else (1, width)
    per_thread = -(-inputs // step_in)
    if per_thread < height * 16 and per_thread < MAX_PER_THREAD:
        return ()  # every warp has an output of its own
    step_in *= height
    per_thread = -(-inputs // step_in)
    grid = -(-(outputs // vector) // step_out)
    room = processors * (threads // (width * height))
    if per_thread < MAX_PER_THREAD or grid > room:
        return ()
    blocks = max(min(-(-room // grid), -(-per_thread // MIN_PER_THREAD)), -(-per_thread // MAX_PER_THREAD))
    if blocks <= 1:
        return ()
    size = element * outputs * blocks
    return (size if along_fastest else size * width * vector, 4 * grid)


def _iterated(tensor: Strided, dims: Sequence[int] | None) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The reduced and the kept dimensions, each (size, stride in elements), fastest first, neighbours joined.

    As ``TensorIterator`` orders and coalesces them.
    """
    which = {dim % tensor.dim() for dim in dims} if dims else set(range(tensor.dim()))
    every = [(size, stride, dim) for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))]
    reduced = sorted(((s, st) for s, st, dim in every if dim in which and s != 1), key=lambda item: item[1])
    # The kept ones are ordered by the strides of the output, which is contiguous.
    kept = [(s, st) for s, st, dim in reversed(every) if dim not in which and s != 1]
    return _joined(reduced) or [(1, 1)], _joined(kept)


def _joined(dims: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for size, stride in dims:
        if joined and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = (joined[-1][0] * size, joined[-1][1])
        else:
            joined.append((size, stride))
    return joined


def _vector(reduced: list[tuple[int, int]], kept: list[tuple[int, int]], offset: int) -> int:
    """Return the number of outputs that one thread loads at once (``get_output_vec_size``)."""
    vector = VECTOR
    for count in [offset, kept[0][0], *(stride for _, stride in reduced), *(stride for _, stride in kept[1:])]:
        while count % vector:
            vector //= 2
    return vector


def _power(size: int, most: int) -> int:
    """The largest power of two up to ``size``, and up to ``most``."""
    return most if size >= most else 1 << (max(size, 1).bit_length() - 1)
