"""Kernels that take tensors laid out in one way: what lies in memory in another way is copied first.

A rule names the function of PyTorch that makes the copies where its name is not the operator's with ``_cuda``.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions.views import View
from memlab.vgpu.scratch.rule import RESULT, Rule, Step

aten = torch.ops.aten
Given = tuple[Any, ...]


def copies(*tensors: torch.Tensor) -> list[int]:
    """Bytes of the copies of those that are not contiguous."""
    return [tensor.nbytes for tensor in tensors if not tensor.is_contiguous()]


def flattened(tensor: torch.Tensor) -> list[int]:
    """Bytes of the copy that makes one dimension of all; none where that is a view."""
    dims = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    viewed = all(outer == size * stride for (_, outer), (size, stride) in pairwise(dims))
    return [] if viewed else [tensor.nbytes]


def _copies(args: Given, places: tuple[int, ...], like: int | None = None) -> list[int]:
    """Bytes of copies of those that are not contiguous, in the memory format that one of the arguments suggests."""
    channels_last = like is not None and View.of(args[like]).is_channels_last
    tensors = [args[place] for place in places]
    return [tensor.numel() * tensor.element_size() for tensor in tensors if not _lies(tensor, channels_last)]


def _lies(tensor: torch.Tensor, channels_last: bool) -> bool:
    return View.of(tensor).has_format(True) if channels_last else tensor.is_contiguous()


def _copied(*places: int, like: int | None = None) -> Rule:
    """The results, and then copies of these arguments."""

    def rule(card: Card, args: Given, out: Any) -> Iterable[Step]:
        return RESULT, *_copies(args, places, like)

    return rule


def _copied_before(*places: int) -> Rule:
    """Copies of these arguments, and then the results."""

    def rule(card: Card, args: Given, out: Any) -> Iterable[Step]:
        return *_copies(args, places), RESULT

    return rule


def _norm_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # layer_norm_backward_cuda, _fused_rms_norm_backward_cuda: the input first, the gradient in the kernel's caller
    return *_copies(args, (1,)), RESULT, *_copies(args, (0,))


def _adaptive_mean(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # adaptive_avg_pool2d_out_cuda_template: in channels_last the kernel follows the strides
    return () if View.of(args[0]).is_channels_last else (*_copies(args, (0,)), RESULT)


def _adaptive_mean_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    return () if View.of(args[1]).is_channels_last else (RESULT, *_copies(args, (0,)))


def _adaptive_max_pool(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # adaptive_max_pool2d_out_cuda: the kernel takes and gives contiguous images
    return RESULT, *_copies((*out, args[0]), (0, 1, 2))


def _adaptive_max_pool_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    return RESULT, *_copies((args[0], args[2], out), (0, 1, 2))


def _antialiased(card: Card, args: Given, out: Any) -> Iterable[Step]:
    return RESULT, *_copies((out, args[0]), (0, 1))


def _searched(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # searchsorted_maybe_trim_input_tensors: what is looked for, then where; and in the type of both
    rows, wanted = args[:2]
    if not isinstance(wanted, torch.Tensor):
        return ()
    common = torch.promote_types(rows.dtype, wanted.dtype)
    cast = [tensor.numel() * common.itemsize for tensor in (wanted, rows) if tensor.dtype != common]
    return RESULT, *copies(wanted, rows), *cast


def _into_buckets(card: Card, args: Given, out: Any) -> Iterable[Step]:
    return _searched(card, (args[1], args[0]), out)


def _enlarged(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # upsample_bilinear2d_out_cuda_template: the kernel of plain images follows the strides
    return (RESULT, *_copies(args, (0,), 0)) if View.of(args[0]).is_channels_last else ()


RULES: dict[object, Rule] = {
    aten.native_layer_norm: _copied_before(0),
    aten.native_layer_norm_backward: _norm_backward,
    aten._fused_rms_norm: _copied_before(0),
    aten._fused_rms_norm_backward: _norm_backward,
    aten._softmax: _copied(0),  # host_softmax
    aten._log_softmax: _copied(0),
    aten._log_softmax_backward_data: _copied(0, 1),  # host_softmax_backward
    aten.nll_loss_forward: _copied(0, 1),
    aten.nll_loss_backward: _copied(1, 2),
    aten.kthvalue: _copied_before(0),
    aten.cummax: _copied(0),
    aten.cummin: _copied(0),
    aten.searchsorted: _searched,
    aten.bucketize: _into_buckets,
    aten.avg_pool2d: _copied(0, like=0),
    aten.avg_pool2d_backward: _copied(1, 0, like=1),
    aten.avg_pool3d: _copied(0),
    aten.avg_pool3d_backward: _copied(0),
    aten.max_pool2d_with_indices: _copied(0, like=0),
    aten.max_pool2d_with_indices_backward: _copied(1, 0, like=1),
    aten.max_pool3d_with_indices: _copied(0, like=0),
    aten.max_pool3d_with_indices_backward: _copied(0, like=1),
    aten.fractional_max_pool2d_backward: _copied_before(0),
    aten._adaptive_avg_pool2d: _adaptive_mean,
    aten._adaptive_avg_pool2d_backward: _adaptive_mean_backward,
    aten._adaptive_avg_pool3d: _copied_before(0),
    aten._adaptive_avg_pool3d_backward: _copied(0),
    aten.adaptive_max_pool2d: _adaptive_max_pool,
    aten.adaptive_max_pool2d_backward: _adaptive_max_pool_backward,
    aten.upsample_nearest2d: _copied(0, like=0),
    aten.upsample_nearest2d_backward: _copied(0, like=0),
    aten.upsample_nearest3d: _copied(0),
    aten.upsample_nearest3d_backward: _copied(0),
    aten.upsample_linear1d_backward: _copied(0),
    aten.upsample_bilinear2d: _enlarged,
    aten.upsample_bilinear2d_backward: _copied(0, like=0),
    aten.upsample_trilinear3d_backward: _copied(0),
    aten.upsample_bicubic2d_backward: _copied(0),
    aten._upsample_bilinear2d_aa: _antialiased,
    aten._upsample_bicubic2d_aa: _antialiased,
    aten._upsample_bilinear2d_aa_backward: _copied(0),
    aten._upsample_bicubic2d_aa_backward: _copied(0),
    aten.reflection_pad2d: _copied(0),
    aten.reflection_pad2d_backward: _copied(0),
}
