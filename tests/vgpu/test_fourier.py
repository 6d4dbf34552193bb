"""Fourier transforms of float16, which PyTorch refuses to other devices than CUDA."""

import pytest
import torch
from torch import fft, nn

from memlab import predict
from tests.vgpu.once import seen

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")  # which PyTorch calls experimental

WAYS = {
    "half of the frequencies": (lambda x: fft.rfft(x).abs(), 27740672),
    "and back": (lambda x: fft.irfft2(fft.rfft2(x)), 30722560),
    "all of them": (lambda x: fft.ifft(fft.fft(x)).real, 30722560),
    "three dimensions": (lambda x: torch.view_as_real(fft.fftn(x, dim=(-3, -2, -1))), 40159744),
    "backwards": (lambda x: torch.view_as_real(fft.ifft(x).resolve_conj()), 41208320),
    "a part": (lambda x: fft.fft(x, n=32, dim=2).real, 25479680),
    "padded": (lambda x: fft.rfft2(x, s=(32, 128), norm="ortho").abs(), 27658752),
}


# What the same loop takes with PyTorch on the stand-in.
@pytest.mark.parametrize(("transform", "peak"), WAYS.values(), ids=WAYS)
def test_of_half_precision(transform, peak):
    def train(device):
        model = nn.Linear(64, 64).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(8, 16, 64, 64, device=device)
        while True:
            loss = transform(model(x).half()).float().pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    assert predict(train, steps=3).peak_allocated == peak


TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "rfftn")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_its_shape_is_that_of_other_precisions(name):
    def work(device):
        x = torch.ones(2, 8, 16, device=device)
        return [getattr(fft, name)(given).shape for given in (x.half(), x)]

    half, single = seen(work)
    assert half == single
