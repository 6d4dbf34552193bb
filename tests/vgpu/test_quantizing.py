"""Training that is aware of quantization: numbers rounded as if they were stored in 8 bits."""

import pytest
import torch
from torch import nn

from memlab import predict

RANGE = (-128, 127)
WAYS = {
    "a scale": (lambda w, s, z: torch.fake_quantize_per_tensor_affine(w, 0.1, 0, *RANGE), 6556672),
    "a scale on the card": (
        lambda w, s, z: torch.fake_quantize_per_tensor_affine(w, s[:1].detach(), z[:1].int(), *RANGE),
        6556672,
    ),
    "a scale a row": (
        lambda w, s, z: torch.fake_quantize_per_channel_affine(w, s.detach(), z.detach().int(), 0, *RANGE),
        6556672,
    ),
    "a scale that learns": (
        lambda w, s, z: torch._fake_quantize_learnable_per_tensor_affine(w, s[:1], z[:1], *RANGE),
        7343104,
    ),
    "scales that learn": (
        lambda w, s, z: torch._fake_quantize_learnable_per_channel_affine(w, s, z, 0, *RANGE),
        7343104,
    ),
    "columns": (lambda w, s, z: torch._fake_quantize_learnable_per_channel_affine(w.t(), s, z, 1, *RANGE), 7343104),
}


# What the same loop takes with PyTorch on the stand-in.
@pytest.mark.parametrize(("rounded", "peak"), WAYS.values(), ids=WAYS)
def test_rounded(rounded, peak):
    def train(device):
        weight = nn.Parameter(torch.randn(256, 1024, device=device))
        scales, zeros = (nn.Parameter(fill(256, device=device)) for fill in (torch.ones, torch.zeros))
        optimizer = torch.optim.SGD([weight, scales, zeros], lr=0.1)
        while True:
            loss = rounded(weight * 1.5, scales, zeros).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    assert predict(train, steps=3).peak_allocated == peak
