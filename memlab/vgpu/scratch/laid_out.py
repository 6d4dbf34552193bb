"""Kernels that take tensors laid out in one way: what lies in memory in another way is copied first.

A rule names the function of PyTorch that makes the copies where its name is not the operator's with ``_cuda``.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions.views import View
from memlab.vgpu.scratch.rule import RESULT, Rule, Step

aten = torch.ops.aten


def copies(*tensors: torch.Tensor, channels_last: bool = False) -> list[int]:
    """Bytes of the copies of those that are not contiguous; or where ``channels_last``, that do not lie so."""
    return [tensor.nbytes for tensor in tensors if not _lies(tensor, channels_last)]


def _lies(tensor: torch.Tensor, channels_last: bool) -> bool:
    return View.of(tensor).has_format(True) if channels_last else tensor.is_contiguous()


def flattened(tensor: torch.Tensor) -> list[int]:
    """Bytes of the copy that makes one dimension of all; none where that is a view."""
    dims = [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    viewed = all(outer == size * stride for (_, outer), (size, stride) in pairwise(dims))
    return [] if viewed else [tensor.nbytes]


def _copied(*names: str, like: str | None = None) -> Rule:
    """The results, and then copies of these arguments, in the memory format that one of the arguments suggests."""

    def rule(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
        channels_last = like is not None and View.of(getattr(given, like)).is_channels_last
        return RESULT, *copies(*(getattr(given, name) for name in names), channels_last=channels_last)

    return rule


def _copied_before(name: str) -> Rule:
    """A copy of this argument, and then the results."""

    def rule(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
        return *copies(getattr(given, name)), RESULT

    return rule


def _norm_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # layer_norm_backward_cuda, _fused_rms_norm_backward_cuda: the input first, the gradient in the kernel's caller
    return *copies(given.input), RESULT, *copies(given.grad_out)


def _adaptive_mean(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # adaptive_avg_pool2d_out_cuda_template: in channels_last the kernel follows the strides
    return () if View.of(given.self).is_channels_last else (*copies(given.self), RESULT)


def _adaptive_mean_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return () if View.of(given.self).is_channels_last else (RESULT, *copies(given.grad_output))


def _adaptive_max_pool(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # adaptive_max_pool2d_out_cuda: the kernel takes and gives contiguous images
    return RESULT, *copies(*out, given.self)


def _adaptive_max_pool_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, *copies(given.grad_output, given.indices, out)


def _antialiased(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, *copies(out, given.self)


def _searched(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return _found(given.self, given.sorted_sequence)


def _into_buckets(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return _found(given.self, given.boundaries)


def _found(wanted: Any, rows: torch.Tensor) -> Iterable[Step]:
    """``searchsorted_maybe_trim_input_tensors``: what is looked for, then where; and in the type of both."""
    if not isinstance(wanted, torch.Tensor):
        return ()
    common = torch.promote_types(rows.dtype, wanted.dtype)
    cast = [tensor.numel() * common.itemsize for tensor in (wanted, rows) if tensor.dtype != common]
    return RESULT, *copies(wanted, rows), *cast


def _enlarged(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # upsample_bilinear2d_out_cuda_template: the kernel of plain images follows the strides
    return (RESULT, *copies(given.self, channels_last=True)) if View.of(given.self).is_channels_last else ()


RULES: dict[object, Rule] = {
    aten.native_layer_norm: _copied_before("input"),
    aten.native_layer_norm_backward: _norm_backward,
    aten._fused_rms_norm: _copied_before("input"),
    aten._fused_rms_norm_backward: _norm_backward,
    aten._softmax: _copied("self"),  # host_softmax
    aten._log_softmax: _copied("self"),
    aten._log_softmax_backward_data: _copied("grad_output", "output"),  # host_softmax_backward
    aten.nll_loss_forward: _copied("self", "target"),
    aten.nll_loss_backward: _copied("self", "target"),
    aten.kthvalue: _copied_before("self"),
    aten.cummax: _copied("self"),
    aten.cummin: _copied("self"),
    aten.searchsorted: _searched,
    aten.bucketize: _into_buckets,
    aten.avg_pool2d: _copied("self", like="self"),
    aten.avg_pool2d_backward: _copied("self", "grad_output", like="self"),
    aten.avg_pool3d: _copied("self"),
    aten.avg_pool3d_backward: _copied("grad_output"),
    aten.max_pool2d_with_indices: _copied("self", like="self"),
    aten.max_pool2d_with_indices_backward: _copied("self", "grad_output", like="self"),
    aten.max_pool3d_with_indices: _copied("self", like="self"),
    aten.max_pool3d_with_indices_backward: _copied("grad_output", like="self"),
    aten.fractional_max_pool2d_backward: _copied_before("grad_output"),
    aten._adaptive_avg_pool2d: _adaptive_mean,
    aten._adaptive_avg_pool2d_backward: _adaptive_mean_backward,
    aten._adaptive_avg_pool3d: _copied_before("self"),
    aten._adaptive_avg_pool3d_backward: _copied("grad_output"),
    aten.adaptive_max_pool2d: _adaptive_max_pool,
    aten.adaptive_max_pool2d_backward: _adaptive_max_pool_backward,
    aten.upsample_nearest2d: _copied("self", like="self"),
    aten.upsample_nearest2d_backward: _copied("grad_output", like="grad_output"),
    aten.upsample_nearest3d: _copied("self"),
    aten.upsample_nearest3d_backward: _copied("grad_output"),
    aten.upsample_linear1d_backward: _copied("grad_output"),
    aten.upsample_bilinear2d: _enlarged,
    aten.upsample_bilinear2d_backward: _copied("grad_output", like="grad_output"),
    aten.upsample_trilinear3d_backward: _copied("grad_output"),
    aten.upsample_bicubic2d_backward: _copied("grad_output"),
    aten._upsample_bilinear2d_aa: _antialiased,
    aten._upsample_bicubic2d_aa: _antialiased,
    aten._upsample_bilinear2d_aa_backward: _copied("grad_output"),
    aten._upsample_bicubic2d_aa_backward: _copied("grad_output"),
    aten.reflection_pad2d: _copied("self"),
    aten.reflection_pad2d_backward: _copied("grad_output"),
}
