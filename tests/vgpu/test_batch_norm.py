"""Bytes that a batch norm keeps in evaluation mode, as counted with torch 2.11, 2.13 and 2.15 on the stand-in's T4."""

import pytest
import torch
from torch import nn

from memlab import predict

KEPT = 2 * 512  # a mean and a deviation for each channel


def kept(layer, tensor, training=False):
    """Bytes that are there after the layer's forward pass, beside its result."""
    found = []

    def train(device):
        norm, x = layer.to(device).train(training), tensor.to(device).requires_grad_()
        before = torch.cuda.memory_allocated()
        y = norm(x)
        found.append(torch.cuda.memory_allocated() - before - y.nbytes)
        yield y.sum()

    predict(train, gpu="T4", steps=1)
    return found[0]


@pytest.mark.parametrize(
    ("layer", "tensor", "expected"),
    [
        (nn.BatchNorm2d(16), torch.ones(8, 16, 8, 8), 0),
        (nn.BatchNorm2d(16), torch.ones(8, 16, 8, 8).contiguous(memory_format=torch.channels_last), 0),
        (nn.BatchNorm1d(16), torch.ones(8, 16, 8), 0),
        (nn.BatchNorm2d(16), torch.ones(8, 16, 8, 8, dtype=torch.float16), 0),
        (nn.BatchNorm1d(16), torch.ones(64, 16), KEPT),
        (nn.BatchNorm2d(16, affine=False), torch.ones(8, 16, 8, 8), KEPT),
        (nn.BatchNorm2d(16).half(), torch.ones(8, 16, 8, 8, dtype=torch.float16), KEPT),
        (nn.BatchNorm2d(16), torch.ones(8, 16, 8, 8, dtype=torch.bfloat16), KEPT),
        (nn.BatchNorm2d(16), torch.ones(70_000, 16, 1, 1), KEPT),
    ],
)
def test_cudnns_keeps_nothing_when_it_evaluates(layer, tensor, expected):
    assert kept(layer, tensor) == expected
    assert kept(layer, tensor, training=True) == KEPT


def test_without_cudnn_a_mean_and_a_deviation_are_kept():
    with torch.backends.cudnn.flags(enabled=False):
        assert kept(nn.BatchNorm2d(16), torch.ones(8, 16, 8, 8)) == KEPT
