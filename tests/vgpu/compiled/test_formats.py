"""Convolutions in compiled code, in the memory format that the card gives their results."""

import pytest
import torch
from torch import nn

from memlab import predict


@pytest.mark.filterwarnings("ignore")
def test_channels_stay_last():
    """Were the result's channels first, as PyTorch's fake kernel says of the slot's device, it would be copied."""
    strides = []

    def train(device):
        net = nn.Conv2d(32, 32, 1, bias=False).to(device, memory_format=torch.channels_last)
        run = torch.compile(nn.Sequential(net, nn.BatchNorm2d(32).to(device), nn.ReLU()))
        while True:
            x = torch.zeros(8, 32, 64, 64, device=device).to(memory_format=torch.channels_last)
            out = run(x)
            strides.append(out.stride())
            yield out.sum()

    predict(train, gpu="A100-40GB", steps=1)
    assert strides == [(32 * 64 * 64, 1, 32 * 64, 32)]
