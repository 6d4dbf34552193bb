"""Convolutions that ATen itself runs as products of matrices, an image at a time.

They run where cuDNN is switched off, and in bfloat16 on cards before sm_80. An image is unfolded into columns, a copy
of each pixel for each place of the kernel: ``ConvolutionMM2d.cu``, ``NaiveDilatedConvolution.cu``,
``NaiveConvolutionTranspose2d.cu`` and ``3d.cu``. Groups run one after another.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

from memlab.vgpu.convolutions.arguments import Settings
from memlab.vgpu.convolutions.views import View, dense_strides
from memlab.vgpu.convolutions.work import Work


def forward(work: Work, x: View, w: View, y: View, settings: Settings) -> None:
    """Hold and free what the forward pass does."""
    x, w = work.in_format(x, False), work.in_format(w, False)
    if settings.groups == 1:
        with work.scope():
            if begins_as_input(x, settings) and y.nbytes > x.nbytes:
                work.hold(x.nbytes)
            work.result()
        _forward_columns(work, x, w, y, settings)
        return
    with work.scope() as outs:
        for _ in range(settings.groups):
            with work.scope():
                part = _group(work, x, settings.groups)
                out = _part(y, 1, settings.groups)
                work.hold(out.nbytes, outs)
                _forward_columns(work, part, _part(w, 0, settings.groups), out, settings)
        work.result()


def begins_as_input(x: View, settings: Settings) -> bool:
    """Return True if the result is at first as large as the input, never smaller: ``slow_conv_transpose3d_cuda``."""
    return settings.transposed and len(x.shape) == 5 and settings.groups == 1


def backward(work: Work, grad: View, x: View, w: View, settings: Settings, wanted: tuple[bool, bool, bool]) -> None:
    """The gradients that are wanted."""
    x, w = work.in_format(x, False), work.in_format(w, False)
    if settings.groups == 1:
        _gradients(work, grad, x, w, settings, wanted, work.result)
        return
    sizes = [nbytes // settings.groups for nbytes in (x.nbytes, w.nbytes, grad.shape[1] * grad.dtype.itemsize)]
    with work.scope() as inputs, work.scope() as weights, work.scope() as biases:
        scopes = inputs, weights, biases
        for _ in range(settings.groups):
            with work.scope():
                grads, part = _group(work, grad, settings.groups), _group(work, x, settings.groups)
                weight = _part(w, 0, settings.groups)
                _gradients(work, grads, part, weight, settings, wanted, lambda i: work.hold(sizes[i], scopes[i]))
        for index in range(3):
            work.result(index)


def _gradients(
    work: Work,
    grad: View,
    x: View,
    w: View,
    settings: Settings,
    wanted: tuple[bool, bool, bool],
    take: Callable[[int], None],
) -> None:
    """Of all channels, or of one group's; ``take`` takes the memory of one of them."""

    def made(index: int) -> None:
        if wanted[index]:
            take(index)

    with work.scope():
        grad = work.in_format(grad, False)
        if settings.transposed:
            _transposed_gradients(work, grad, x, w, wanted, made)
        elif _is_dilated(x, settings):
            for index in range(3):
                made(index)
            work.hold(_columns(w, grad))
            work.product()
            _bias_of_one_image(work, grad, wanted)
        else:
            made(0)
            if wanted[0]:
                work.hold(_columns(w, grad))
                work.product()
            made(2)
            if wanted[2]:
                work.sum_over_all_but_channels(grad)
            made(1)
            if wanted[1]:
                if not wanted[0]:
                    work.hold(_columns(w, grad))
                work.product()


def _transposed_gradients(
    work: Work, grad: View, x: View, w: View, wanted: tuple[bool, bool, bool], made: Callable[[int], None]
) -> None:
    columns = prod(w.shape[1:]) * prod(x.shape[2:]) * x.dtype.itemsize
    made(0)
    if wanted[0]:
        with work.scope():
            work.hold(columns)
            work.product()
    made(1)
    made(2)
    if wanted[2]:
        work.sum_over_all_but_channels(grad)
    if wanted[1]:
        work.hold(columns)
        work.product()


def _bias_of_one_image(work: Work, grad: View, wanted: tuple[bool, bool, bool]) -> None:
    if wanted[2]:
        with work.scope():
            work.hold(grad.shape[1] * grad.dtype.itemsize)


def _forward_columns(work: Work, x: View, w: View, y: View, settings: Settings) -> None:
    with work.scope():
        if settings.transposed:
            work.hold(prod(w.shape[1:]) * prod(x.shape[2:]) * x.dtype.itemsize)
            work.hold(prod(y.shape[2:]) * y.dtype.itemsize)
        elif _is_dilated(x, settings) or _needs_columns(w, settings):
            work.hold(_columns(w, y))
        work.product()


def _columns(w: View, y: View) -> int:
    return prod(w.shape[1:]) * prod(y.shape[2:]) * y.dtype.itemsize


def _needs_columns(w: View, settings: Settings) -> bool:
    """``requires_columns``: not for a kernel of one pixel."""
    return {*w.shape[2:], *settings.stride} != {1} or any(settings.padding)


def _is_dilated(x: View, settings: Settings) -> bool:
    return len(x.shape) == 5 or set(settings.dilation) != {1}


def _part(view: View, dim: int, groups: int) -> View:
    shape = tuple(size // groups if axis == dim else size for axis, size in enumerate(view.shape))
    return replace(view, shape=shape)


def _group(work: Work, view: View, groups: int) -> View:
    """``subtensor``: some of the channels, contiguous."""
    part = _part(view, 1, groups)
    copied = work.in_format(part, False)
    return View(copied.shape, dense_strides(copied.shape, False), copied.dtype)
