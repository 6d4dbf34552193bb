"""The answers that ship with memlab: enough for the notebooks on a machine without cuDNN."""

import pytest
import torch

from memlab import predict
from memlab.nets import ResNet, ViT
from memlab.sizes import SIZES
from memlab.vgpu import CARDS
from memlab.vgpu.convolutions import asking
from memlab.vgpu.cudnn import shipped
from memlab.vgpu.cudnn.answers import Answers
from tests.published.networks import NETWORKS


@pytest.fixture(autouse=True)
def _without_cudnn(monkeypatch):
    none = Answers(asking.wanted_version(), 0, None)
    monkeypatch.setattr(asking, "answers", lambda wanted: none)


def train(device, *, network="ResNet", batch_size=8, edge=32, deterministic=False, **settings):
    model = {"ResNet": ResNet, "ViT": ViT}.get(network) or NETWORKS[network]
    model = model(**settings).to(device)
    labels = [torch.zeros(batch_size, dtype=torch.int64).to(device)] if network in ("ResNet", "ViT") else []
    with torch.backends.cudnn.flags(enabled=True, deterministic=deterministic):
        model(torch.randn(batch_size, 3, edge, edge).to(device), *labels).mean().backward()
        yield


def is_known(gpu="T4", **settings):
    return asking.UNKNOWN.sentence not in predict(train, gpu=gpu, steps=1, **settings).notes


@pytest.mark.parametrize("size", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("deterministic", [False, True])
def test_the_notebooks_networks_are_known(size, deterministic):
    edge, batch_size = size.image_size, size.image_batch_size
    settings = {"batch_size": batch_size, "edge": edge, "deterministic": deterministic}
    assert is_known(width=size.resnet_width, **settings)
    assert is_known(network="ViT", depth=1, width=size.width, heads=1, image=edge, patch=size.patch, **settings)


@pytest.mark.parametrize("width", [768, 1024])
def test_the_large_networks_of_the_notebooks_are_known(width):
    assert is_known(network="ViT", edge=224, depth=1, width=width, heads=1, batch_size=64)
    assert is_known(width=64, edge=128, batch_size=128, deterministic=True)


@pytest.mark.parametrize("gpu", {card.sm: name for name, card in CARDS.items()}.values())
def test_every_card_is_known(gpu):
    size = SIZES["ci"]
    assert is_known(gpu, width=size.resnet_width, edge=size.image_size, batch_size=size.image_batch_size)


@pytest.mark.parametrize("network", ["resnet50", "vgg16"])
def test_common_networks_are_known(network):
    assert is_known(network=network, edge=224, batch_size=32)


def test_what_does_not_ship_is_said():
    assert shipped.version()
    assert not is_known(width=24, edge=48, batch_size=5)
