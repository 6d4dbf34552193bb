"""The memory format of a convolution's results, which PyTorch's fake kernels know for CUDA's own device only."""

from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.convolutions.arguments import backward_arguments, forward_arguments
from memlab.vgpu.convolutions.by_matrices import begins_as_input
from memlab.vgpu.convolutions.choice import suggests_channels_last, uses_cudnn
from memlab.vgpu.convolutions.views import dense_strides
from memlab.vgpu.current_prediction import current
from memlab.vgpu.results import make_fake, within

aten = torch.ops.aten


def _forward(mode: Any, given: Arguments, out: Any) -> Any:
    x, w, settings = forward_arguments(current().card, given)
    if not uses_cudnn(x, w, settings):
        return within(mode, out, given.input.numel()) if begins_as_input(x, settings) else out
    return _last(mode, out) if suggests_channels_last(x, w) else out


def _backward(mode: Any, given: Arguments, out: tuple[Any, ...]) -> tuple[Any, ...]:
    grad, x, w, settings = backward_arguments(current().card, given)
    if not any(view.is_channels_last for view in (grad, x, w)) or not uses_cudnn(x, w, settings):
        return out
    if given.output_mask[1]:
        x = x.in_format(suggests_channels_last(x, w))
    grad = grad if grad.is_channels_last == x.is_channels_last else grad.in_format(x.is_channels_last)
    lasts = suggests_channels_last(grad, w), suggests_channels_last(grad, x), False
    return tuple(_last(mode, one) if last and one is not None else one for one, last in zip(out, lasts, strict=True))


def _last(mode: Any, tensor: Any) -> Any:
    """A result like this one, with its channels last."""
    strides = dense_strides(tuple(tensor.shape), True)
    meta = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="meta")
    return make_fake(mode, meta, tensor.fake_device)


CORRECTIONS = {id(aten.convolution.default): _forward, id(aten.convolution_backward.default): _backward}
