"""The loops really train, and each technique gives what the plain loop gives."""

import pytest
import torch

from memlab import measure
from tests.loops.matrix import nets
from tests.loops.matrix.training import OPTIMIZERS

SMALL = {"depth": 2, "width": 32, "heads": 2, "context": 16, "vocabulary": 50, "batch_size": 4}


def losses(**settings):
    return measure(nets.gpt, device="cpu", steps=3, **SMALL, **settings).losses


def test_the_exact_techniques_change_no_loss():
    plain = losses()
    for settings in ({"checkpoint_every": 1}, {"loss": "chunked"}, {"offload": True}, {"attention": "math"}):
        assert losses(**settings) == pytest.approx(plain, rel=1e-5), settings
    assert losses(optimizer="AdamW in backward") == pytest.approx(plain, rel=1e-5)
    assert losses(optimizer="AdamW for-loop") == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "pure bf16"])
def test_every_precision_trains(precision):
    assert losses(precision=precision)[-1] < 4.5


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_trains(optimizer):
    assert all(map(torch.isfinite, map(torch.tensor, losses(optimizer=optimizer))))


def test_accumulation_takes_less_for_the_same_batch():
    whole, parts = (measure(nets.gpt, device="cpu", **SMALL | {"accumulate": n}) for n in (1, 4))
    assert parts.peak_allocated < whole.peak_allocated


def test_the_precision_of_products_is_put_back():
    before = torch.get_float32_matmul_precision()
    losses(precision="tf32")
    assert torch.get_float32_matmul_precision() == before


def test_images_and_layers_learn():
    layers = measure(nets.mlp, device="cpu", steps=100, depth=2, width=16, batch_size=64).losses
    assert max(layers[-5:]) < 0.2 * min(layers[:5])  # it learns to give zeros
    images = measure(nets.resnet, device="cpu", steps=6, batch_size=2, image=16, channels_last=True).losses
    assert images[-1] < 0.5 * images[0]
