"""Who runs a convolution, and in which memory format."""

import torch

from memlab.vgpu.convolutions.arguments import Settings
from memlab.vgpu.convolutions.views import View

Sizes = tuple[int, ...]
MOST_INDEX = 2**31 - 1


def uses_cudnn(x: View, w: View, settings: Settings) -> bool:
    """``_select_conv_backend`` of ``Convolution.cpp``: cuDNN, or kernels of ATen's own."""
    if not settings.cudnn or 0 in x.shape:
        return False
    if is_depthwise(x, w, settings):
        return _uses_cudnn_depthwise(x, w, settings)
    if torch.bfloat16 in (x.dtype, w.dtype) and not settings.bf16:
        return False
    return all(more < step for more, step in zip(settings.output_padding, settings.stride, strict=True))


def suggests_channels_last(first: View, second: View) -> bool:
    """``cudnn_conv_suggest_memory_format`` of ``ConvUtils.h``."""
    return torch.float64 not in (first.dtype, second.dtype) and (first.is_channels_last or second.is_channels_last)


def is_depthwise(x: View, w: View, settings: Settings) -> bool:
    """Return True if each group has one channel of the input."""
    groups = settings.groups
    return not settings.transposed and groups > 1 and x.shape[1] == groups and w.shape[0] % groups == 0


def _uses_cudnn_depthwise(x: View, w: View, settings: Settings) -> bool:
    """``use_cudnn_depthwise``: in channels_last, and in float16 where it was measured to be faster."""
    if suggests_channels_last(x, w) or max(x.nbytes, w.nbytes) // x.dtype.itemsize > MOST_INDEX:
        return True
    return (
        x.dtype is torch.float16
        and len(x.shape) == 4
        and settings.dilation == (1, 1)
        and (settings.stride[0] == settings.stride[1] or x.shape[2] == 1)
        and x.shape[1] >= 32
        and _is_worth_cudnn(x.shape, w.shape, settings.stride[1])
    )


def _is_worth_cudnn(x: Sizes, w: Sizes, stride: int) -> bool:
    """``check_cudnn_depthwise_workload_with_filter``."""
    batch, channels, height, width = x
    edge = w[3]
    if height == 1 and stride == 1:
        return True
    if w[2] != edge or edge not in (1, 3, 5) or width < 7 or stride not in (1, 2):
        return False
    if stride == 1:
        return True
    if batch == 1:
        return edge > 1 or width <= 28
    if edge == 1:
        return batch <= 16 and channels >= 128 and width <= 7
    return channels >= 512 or (channels >= 256 and width >= 28)
