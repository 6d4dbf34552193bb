"""Convolutions that cuDNN runs: ``cudnn/ConvShared.cpp`` of ATen."""

from memlab.vgpu.convolutions.arguments import Settings
from memlab.vgpu.convolutions.choice import suggests_channels_last
from memlab.vgpu.convolutions.views import View
from memlab.vgpu.convolutions.work import Work
from memlab.vgpu.cudnn.convolution import DATA, FILTER, FORWARD, Convolution

Sizes = tuple[int, ...]


def forward(work: Work, x: View, w: View, shape: Sizes, settings: Settings) -> None:
    """A result of that shape."""
    x = work.in_format(x, suggests_channels_last(x, w))
    if settings.transposed:
        _gradient_of_input(work, x, w, shape, settings)
    else:
        _convolution(work, x, w, settings)


def backward(work: Work, grad: View, x: View, w: View, settings: Settings, wanted: tuple[bool, ...]) -> None:
    """The gradients of input and weight that are wanted."""
    x = work.in_format(x, suggests_channels_last(x, w)) if wanted[1] else x
    # Tensor.to(memory_format) looks at the format that a tensor suggests, not at whether it is dense.
    if grad.is_channels_last != x.is_channels_last:
        grad = work.in_format(grad, x.is_channels_last)
    if wanted[0] and settings.transposed:
        _convolution(work, grad, w, settings)
    elif wanted[0]:
        _gradient_of_input(work, grad, w, x.shape, settings)
    if wanted[1]:
        first, second = (grad, x) if settings.transposed else (x, grad)
        _gradient_of_weight(work, first, second, w.shape, settings)


def _convolution(work: Work, x: View, w: View, settings: Settings) -> None:
    """``cudnn_convolution_forward``."""
    last = suggests_channels_last(x, w)
    work.result()
    with work.scope():
        w, x = work.in_format(w, last), work.in_format(x, last)
        work.ask(_question(FORWARD, x.shape, w.shape, last, settings, x, None, w))


def _gradient_of_input(work: Work, grad: View, w: View, shape: Sizes, settings: Settings) -> None:
    """``cudnn_convolution_backward_input``, which is also a transposed convolution."""
    last = suggests_channels_last(grad, w)
    work.result()
    with work.scope():
        w, grad = work.in_format(w, last), work.in_format(grad, last)
        work.ask(_question(DATA, shape, w.shape, last, settings, None, grad, w))


def _gradient_of_weight(work: Work, x: View, grad: View, shape: Sizes, settings: Settings) -> None:
    """``cudnn_convolution_backward_weight``."""
    last = suggests_channels_last(x, grad)
    with work.scope():
        grad, x = work.in_format(grad, last), work.in_format(x, last)
        work.result(1)
        work.ask(_question(FILTER, x.shape, shape, last, settings, x, grad, None))


def _question(way: str, x: Sizes, w: Sizes, last: bool, settings: Settings, *views: View | None) -> Convolution:
    """``views`` are input, result and weight; a new one has no view."""
    return Convolution(
        way,
        x,
        w,
        settings.stride,
        settings.padding,
        settings.dilation,
        str(next(view for view in views if view).dtype).removeprefix("torch."),
        last,
        settings.tf32,
        settings.deterministic,
        tuple(view.alignment if view else 32 for view in views),
        settings.benchmark,
    )
