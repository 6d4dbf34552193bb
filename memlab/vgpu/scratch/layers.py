"""Layers of images, and functions of matrices, that CUDA makes of several kernels or only takes laid out in one way."""

from collections.abc import Iterable
from math import prod
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import cub
from memlab.vgpu.scratch.cublas import cublas
from memlab.vgpu.scratch.rule import RESULT, Rule, Step

aten = torch.ops.aten
Given = tuple[Any, ...]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _laid_out(*tensors: torch.Tensor) -> Iterable[int]:
    """Bytes of the copies of those that are not contiguous."""
    return [_bytes(tensor) for tensor in tensors if not tensor.is_contiguous()]


def _group_norm(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # GroupNormKernelImplInternal: a factor and a term for each channel of each image
    count, channels, pixels = args[3:6]
    factors = 4 * count * channels
    plain = pixels == 1 or (args[1] is None and args[2] is None)
    return () if plain else (RESULT, factors, factors, -factors, -factors)


def _group_norm_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # GroupNormBackwardKernelImplInternal: two sums for each channel, two factors for each group, one for each channel
    weight, count, channels, pixels, groups = args[4:9]
    of_channels, of_groups = 4 * count * channels, 4 * count * groups
    factors = () if weight is None or pixels == 1 else (of_channels,)
    return of_channels, of_channels, of_groups, of_groups, *factors


def _im2col(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # im2col_out_cuda_template: the result begins as large as the input
    size = _bytes(args[0])
    return size, *_laid_out(args[0]), RESULT


def _roll(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # roll_common: a dimension after the other, and what each gives is kept to the end
    return (*[_bytes(args[0])] * (len(args[2]) - 1), RESULT) if len(args) > 2 and len(args[2]) > 1 else ()


def _is_infinite(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # isinf (TensorCompare.cpp) compares the magnitude
    return (_bytes(args[0]), RESULT) if args[0].is_floating_point() else ()


def _unfold_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    return RESULT, 8 * args[1][args[2]]  # _unfold_backward_internal_kernel: the places in the dimension


def _running(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # scan_dim: one long row is CUB's, several have a kernel of their own
    tensor, width = args[0], out.element_size()
    if tensor.dim() == 0 or tensor.numel() != tensor.shape[args[1]] or width not in (4, 8):
        return ()
    buffer = cub.running_sum(tensor.numel(), width)
    return RESULT, buffer, -buffer


def _absolute(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # unary_op_impl_with_complex_to_float_out: the kernel gives complex numbers
    return (RESULT, _bytes(args[0])) if args[0].is_complex() else ()


def _distances(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # cdist_impl: from 26 points on by a product of matrices
    power, mode = args[2:4]
    if power != 2 or mode == 2 or (mode in (None, 0) and max(args[0].shape[-2], args[1].shape[-2]) <= 25):
        return ()
    return _by_a_product(card, args, out)


def _by_a_product(card: Card, args: Given, out: Any) -> Iterable[Step]:
    """``_euclidean_dist``: squares summed, and each side with two columns more."""
    first, second = args[:2]
    width = first.element_size()
    sides = [(_bytes(tensor), width * tensor.numel() // max(tensor.shape[-1], 1)) for tensor in (first, second)]
    (one, one_rows), (two, two_rows) = sides
    yield from (one, one_rows, -one, one_rows, two, two_rows, -two, two_rows)
    yield from (one, one + 2 * one_rows, -one_rows, -one_rows, -one, two + 2 * two_rows, -two_rows, -two_rows, RESULT)
    yield from cublas(card)


def _distances_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    size = _bytes(args[1]) * args[2].shape[-2]  # cdist_backward_kernel_impl: a part of each pair
    return RESULT, size, -size


def _own_distances_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    size = _bytes(args[1]) * (args[1].shape[0] - 1)  # pdist_backward_kernel_impl
    return RESULT, size, -size


def _multinomial(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # multinomial_out: without replacement the largest of as many random numbers
    tensor = args[0]
    if len(args) > 2 and args[2]:
        return ()
    return RESULT, _bytes(tensor), out.numel() * tensor.element_size()


def _trilinear(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # _trilinear: slice by slice of one dimension, the product of the first two and then that with the third
    tensors = [_unsqueezed(tensor, places) for tensor, places in zip(args[:3], args[3:6], strict=True)]
    summed, unrolled = set(args[6]), args[7] if len(args) > 7 else 1
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


def _scatter_mean(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # scatter_reduce_two: counts by ones, and which are none
    if args[4] != "mean":
        return ()
    return RESULT, _bytes(args[3]), _bytes(out), out.numel()


def _masked_scatter(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # launch_masked_scatter_kernel: of the mask, as large as the result, a running sum
    mask, source = args[1:3]
    count, whole = out.numel(), mask.shape == out.shape and mask.is_contiguous()
    buffer = cub.running_sum(count, 8)
    return RESULT, 8 * count, *([] if whole else [count]), buffer, -buffer, *_laid_out(source)


def _dirichlet(card: Card, args: Given, out: Any) -> Iterable[Step]:
    return RESULT, _bytes(out) // max(out.shape[-1], 1)  # _s_dirichlet_cuda: gamma variates, and their sums


def _affine_grid(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # affine_grid_generator_4D and _5D: all points, a coordinate after the other, are multiplied by the matrices
    width, sizes, aligned = out.element_size(), args[1], args[2]
    yield width * sizes[0] * prod(sizes[2:]) * (len(sizes) - 1)
    for steps in reversed(sizes[2:]):  # linspace_from_neg_one
        size = width * steps
        yield from ((size, -size) if aligned else (size, size, size, -size, -size, -size))
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
    aten.cumprod: _running,
    aten.abs: _absolute,
    aten._trilinear: _trilinear,
    aten._euclidean_dist: _by_a_product,
    aten._cdist_forward: _distances,
    aten._cdist_backward: _distances_backward,
    aten._pdist_backward: _own_distances_backward,
    aten.multinomial: _multinomial,
    aten._sample_dirichlet: _dirichlet,
    aten.scatter_reduce: _scatter_mean,
    aten.masked_scatter: _masked_scatter,
    aten.masked_scatter_: _masked_scatter,
}
