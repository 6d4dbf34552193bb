"""Layers of images, and functions of matrices, that CUDA makes of several kernels or only takes laid out in one way."""

from collections.abc import Iterable
from math import prod
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import cub
from memlab.vgpu.scratch.cublas import cublas
from memlab.vgpu.scratch.laid_out import copies
from memlab.vgpu.scratch.reductions import of_all, over, plain, wide
from memlab.vgpu.scratch.rule import RESULT, Rule, Step
from memlab.vgpu.scratch.sorting import largest
from memlab.vgpu.versions import TORCH

aten = torch.ops.aten


def _group_norm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # GroupNormKernelImplInternal: a factor and a term for each channel of each image
    factors = 4 * given.N * given.C
    plain = given.HxW == 1 or (given.weight is None and given.bias is None)
    return () if plain else (RESULT, factors, factors, -factors, -factors)


def _group_norm_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # GroupNormBackwardKernelImplInternal: two sums for each channel, two factors for each group, one for each channel
    of_channels, of_groups = 4 * given.N * given.C, 4 * given.N * given.group
    factors = () if given.weight is None or given.HxW == 1 else (of_channels,)
    return of_channels, of_channels, of_groups, of_groups, *factors


def _im2col(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # im2col_out_cuda_template: the result begins as large as the input
    return given.self.nbytes, *copies(given.self), RESULT


def _roll(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # roll_common: a dimension after the other, and what each gives is kept to the end; roll_cuda takes it contiguous
    size, copy, times = given.self.nbytes, copies(given.self), len(given.dims)
    if times < 2:
        return *copy, RESULT
    return *copy, size, *(-size for size in copy), *[size] * (times - 2), RESULT


def _is_infinite(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # isinf (TensorCompare.cpp) compares the magnitude
    return (given.self.nbytes, RESULT) if given.self.is_floating_point() else ()


def _unfold_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, 8 * given.input_sizes[given.dim]  # _unfold_backward_internal_kernel: the places in the dimension


def _running(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # cumsum_cuda_kernel and its like: a result that is not contiguous is made beside it. scan_dim: one long row is
    # CUB's, several have a kernel of their own
    tensor, width = given.self, out.element_size()
    if tensor.dim() == 0:
        return
    if tensor.dtype != out.dtype:
        tensor = torch.empty_strided(tensor.shape, tensor.stride(), device="meta").to(out.dtype)
        yield tensor.nbytes
    yield from copies(out, tensor)
    if tensor.numel() == tensor.shape[given.dim] and width in (4, 8):
        buffer = cub.running_sum(tensor.numel(), width)
        yield from (buffer, -buffer)


def _absolute(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # unary_op_impl_with_complex_to_float_out: the kernel gives complex numbers
    return (RESULT, given.self.nbytes) if given.self.is_complex() else ()


def _distances(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # cdist_impl: from 26 points on by a product of matrices
    first, second, mode = given.x1, given.x2, given.compute_mode
    if given.p != 2 or mode == 2 or (mode in (None, 0) and max(first.shape[-2], second.shape[-2]) <= 25):
        return *_batches(first, second), RESULT
    return _by_a_product(card, given, out)


def _batches(*sides: torch.Tensor) -> Iterable[int]:
    """Bytes of the copies of those that are not contiguous once they have the batches of all."""
    batch = torch.broadcast_shapes(*(side.shape[:-2] for side in sides))
    made = (torch.empty_strided(side.shape, side.stride(), dtype=side.dtype, device="meta") for side in sides)
    return copies(*(side.expand(*batch, *side.shape[-2:]) for side in made))


def _by_a_product(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    """``_euclidean_dist``: squares summed, and each side with two columns more."""
    width = given.x1.element_size()
    sides = [(tensor.nbytes, width * tensor.numel() // max(tensor.shape[-1], 1)) for tensor in (given.x1, given.x2)]
    (one, one_rows), (two, two_rows) = sides
    yield from (one, one_rows, -one, one_rows, two, two_rows, -two, two_rows)
    yield from (one, one + 2 * one_rows, -one_rows, -one_rows, -one, two + 2 * two_rows, -two_rows, -two_rows, RESULT)
    yield from cublas(card)


def _distances_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # cdist_backward_kernel_impl: a part of each pair, and their sum; there is no gradient where points are counted
    batches = out.shape[:-2].numel()
    pairs = torch.empty(batches, given.x2.shape[-2], *out.shape[-2:], dtype=out.dtype, device="meta")
    parts = (pairs.nbytes, *over(card, pairs, [1], wide(pairs)), -pairs.nbytes) if given.p else ()
    return *_batches(given.x1, given.x2), RESULT, *parts


def _own_distances_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # pdist_backward_kernel_impl
    pairs = torch.empty(out.shape[0] - 1, *out.shape, dtype=out.dtype, device="meta")
    return (RESULT, pairs.nbytes, *over(card, pairs, [0], wide(pairs)), -pairs.nbytes) if given.p else ()


def _multinomial(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # multinomial_out: without replacement the largest of as many random numbers, once it is sure that none is negative
    # and no row zero. With it (multinomial_with_replacement_kernel_impl) copies: as given, in parts of one, and summed;
    # one less since 2.15.
    tensor, count = given.self, given.num_samples
    width, size = tensor.element_size(), tensor.nbytes
    rows = tensor.numel() // tensor.shape[-1]
    if given.replacement and count > 1:
        buffer = [cub.running_sum(tensor.numel(), width)] if rows == 1 and width in (4, 8) else []
        return RESULT, *[size] * (3 if TORCH < (2, 15) else 2), *buffer, *(-size for size in buffer)
    copy = copies(tensor)
    checked = (width, width, *copy, *of_all(card, tensor, 2 * width), *(-size for size in copy), 1, 1, 1, -1, -1)
    sums = (width * rows, *over(card, tensor, [-1], wide(tensor)))
    zero = (*sums, 1, -width * rows) if tensor.dim() == 1 else (*sums, rows, 1, -rows, -width * rows)
    if count == 1:
        return RESULT, *checked, *zero, 1, -1, size
    random = torch.empty_like(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"))
    values = torch.empty(out.shape, dtype=tensor.dtype, device="meta")
    return RESULT, *checked, *zero, 1, -1, size, values.nbytes, *largest(card, random, (values, out))


def _segments(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _segment_reduce_lengths_offsets_cuda
    return *copies(given.data), RESULT, *_bounds(given.lengths, given.offsets)


def _segments_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return *copies(given.grad, given.data), RESULT, *_bounds(given.lengths, given.offsets)


def _bounds(lengths: torch.Tensor | None, offsets: torch.Tensor | None) -> Iterable[int]:
    """Return the allocations of the segments' bounds: lengths summed from a zero, or lengths from the offsets."""
    if lengths is None:
        return () if offsets is None else (offsets.nbytes - offsets.element_size(),)
    width = lengths.element_size()
    size, buffer = lengths.nbytes + width, cub.running_sum(lengths.numel(), width)
    return width, size, -width, buffer, -buffer


def _trilinear(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _trilinear: slice by slice of one dimension, the product of the first two and then that with the third
    expanded = ((given.i1, given.expand1), (given.i2, given.expand2), (given.i3, given.expand3))
    tensors = [_unsqueezed(tensor, places) for tensor, places in expanded]
    summed, unrolled = set(given.sumdim), given.unroll_dim
    sizes = [max(shape) for shape in zip(*tensors, strict=True)]
    early = {dim for dim in summed if tensors[2][dim] == 1}

    def product(dims: set[int], *shapes: list[int]) -> int:
        widest = [max(shape) for shape in zip(*shapes, strict=True)]
        return out.element_size() * prod(w for dim, w in enumerate(widest) if dim not in dims | {unrolled})

    first, second = product(early, *tensors[:2]), product(summed, sizes)
    space = tuple(cublas(card))
    space += tuple(-step for step in space if isinstance(step, int))
    yield RESULT
    for _ in range(sizes[unrolled]):
        yield from (first, *(space if early else ()), second, *(space if summed - early else ()), -first, -second)


def _unsqueezed(tensor: torch.Tensor, places: Iterable[int]) -> list[int]:
    shape = list(tensor.shape)
    for place in sorted(places):
        shape.insert(place, 1)
    return shape


def _scatter_mean(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # scatter_reduce_two: counts by ones, and which are none
    if given.reduce != "mean":
        return ()
    return RESULT, given.src.nbytes, out.nbytes, out.numel()


def _masked_scatter(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # launch_masked_scatter_kernel: of the mask, as large as the result, a running sum
    count, whole = out.numel(), given.mask.shape == out.shape and given.mask.is_contiguous()
    buffer = cub.running_sum(count, 8)
    return RESULT, 8 * count, *([] if whole else [count]), buffer, -buffer, *copies(given.source)


def _distance(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # dist: the norm of the difference
    count = torch.broadcast_shapes(given.self.shape, given.other.shape).numel()
    difference = torch.empty(count, dtype=out.dtype, device="meta")
    return difference.nbytes, RESULT, *of_all(card, difference)


def _ldexp(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # ldexp: times a power of two, which is a number of eight bytes; whole exponents of a float have a kernel
    exponents = given.other
    if given.self.is_floating_point() and not exponents.is_floating_point():
        return ()
    size = exponents.numel() * torch.result_type(2.0, exponents).itemsize
    return size, 8, -8, RESULT


def _normal(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # normal_out_impl (DistributionTemplates.h): deviations are first looked at, by normal and once more inside; means
    # get a tensor to be broadcast with
    mean, deviation = given.mean, given.std
    if not isinstance(deviation, torch.Tensor):
        return (RESULT, out.nbytes) if isinstance(mean, torch.Tensor) else ()
    least, copy = deviation.element_size(), copies(deviation)
    back = [-size for size in copy]
    looked = (least, *copy, *of_all(card, deviation, plain(deviation)), *back, 1, -1, -least)
    return *looked, RESULT, *looked, *([] if isinstance(mean, torch.Tensor) else [out.element_size()])


def _renorm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # renorm: norms in the type that is added in, and factors in the tensor's own
    tensor, kept = given.self, given.dim % given.self.dim()
    norms = tensor.shape[kept] * wide(tensor)
    factors = [] if wide(tensor) == tensor.element_size() else [tensor.shape[kept] * tensor.element_size()]
    yield from (RESULT, norms)
    yield from over(card, tensor, [dim for dim in range(tensor.dim()) if dim != kept], wide(tensor))
    yield from factors


def _histogram(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _histc_cuda: without bounds, the least and the largest
    if given.min != given.max:
        return ()
    tensor, width = given.self, given.self.element_size()
    return RESULT, width, width, *copies(tensor), *of_all(card, tensor, 2 * width)


def _counts(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _bincount_cuda: weights as they are added, and the least and the largest number
    tensor, weights, width = given.self, given.weights, given.self.element_size()
    if weights is not None and weights.dtype != out.dtype:
        yield weights.numel() * out.element_size()
    copy = copies(tensor)
    yield from (width, width, *copy, *of_all(card, tensor, 2 * width), *(-size for size in copy), RESULT)


def _dirichlet(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, out.nbytes // max(out.shape[-1], 1)  # _s_dirichlet_cuda: gamma variates, and their sums


def _affine_grid(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # affine_grid_generator_4D and _5D: all points, a coordinate after the other, are multiplied by the matrices
    width, sizes = out.element_size(), given.size
    yield width * sizes[0] * prod(sizes[2:]) * (len(sizes) - 1)
    for steps in reversed(sizes[2:]):  # linspace_from_neg_one
        size = width * steps
        yield from ((size, -size) if given.align_corners else (size, size, size, -size, -size, -size))
    yield from (RESULT, *cublas(card))


RULES: dict[object, Rule] = {
    aten.native_group_norm: _group_norm,
    aten.native_group_norm_backward: _group_norm_backward,
    aten.im2col: _im2col,
    aten.roll: _roll,
    aten.isinf: _is_infinite,
    aten.affine_grid_generator: _affine_grid,
    aten.unfold_backward: _unfold_backward,
    aten.cumsum: _running,
    aten.cumsum_: _running,
    aten.cumprod: _running,
    aten.cumprod_: _running,
    aten.logcumsumexp: _running,
    aten.abs: _absolute,
    aten._trilinear: _trilinear,
    aten._euclidean_dist: _by_a_product,
    aten._cdist_forward: _distances,
    aten._cdist_backward: _distances_backward,
    aten._pdist_backward: _own_distances_backward,
    aten.dist: _distance,
    aten.ldexp: _ldexp,
    aten.normal: _normal,
    aten.renorm: _renorm,
    aten.renorm_: _renorm,
    aten.histc: _histogram,
    aten.bincount: _counts,
    aten.multinomial: _multinomial,
    aten.segment_reduce: _segments,
    aten._segment_reduce_backward: _segments_backward,
    aten._sample_dirichlet: _dirichlet,
    aten.scatter_reduce: _scatter_mean,
    aten.masked_scatter: _masked_scatter,
    aten.masked_scatter_: _masked_scatter,
}
