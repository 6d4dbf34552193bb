"""The time that a step probably takes: the efficiency of single operators."""

import pytest
import torch
from torch.nn import functional as F

from memlab import predict
from memlab.vgpu import CARDS
from memlab.vgpu.time.estimate import FITTED
from memlab.vgpu.time.speeds import of_products

SHAPE = (32, 256, 56, 56)


def likely(dtype, groups):
    """The likely seconds of a step that only convolves so, and the floating-point operations."""

    kernel = 7

    def train(device):
        images = torch.empty(SHAPE, device=device, dtype=dtype)
        weight = torch.empty(256, 256 // groups, kernel, kernel, device=device, dtype=dtype)
        while True:
            F.conv2d(images, weight, padding=kernel // 2, groups=groups)
            yield

    flops = 2 * torch.Size(SHAPE).numel() * (256 // groups) * kernel**2
    return predict(train, gpu="A100-40GB").likely_seconds, flops


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_depthwise_convolutions_multiply_outside_of_tensor_cores(dtype):
    seconds, flops = likely(dtype, groups=256)
    reached = FITTED.depthwise * CARDS["A100-40GB"].speed.fp32
    assert seconds == pytest.approx(flops / reached + FITTED.kernel)


def test_groups_of_several_channels_are_convolutions_like_all_others():
    depthwise, _ = likely(torch.float16, groups=256)
    grouped, flops = likely(torch.float16, groups=128)
    assert grouped < depthwise
    assert flops / grouped < of_products(CARDS["A100-40GB"].speed, torch.float16, False)
