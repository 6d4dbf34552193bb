"""Ask the installed cuDNN what ships with memlab: python -m tests.published.ship

The convolutions are those of common networks and of the notebooks' ResNet, for the usual batch sizes and precisions and
all cards. It takes some minutes, and says which cuDNN was asked.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from memlab.nets import ResNet, ViT
from memlab.record.matrix.convolutions import UNet
from memlab.run import predict
from memlab.sizes import SIZES
from memlab.vgpu import CARDS
from memlab.vgpu.convolutions.asking import wanted_version
from memlab.vgpu.cudnn import installed, shipped
from memlab.vgpu.cudnn.answers import answers
from memlab.vgpu.cudnn.client import ByCapability
from memlab.vgpu.cudnn.questions import Convolution
from tests.published.networks import NETWORKS

BATCHES = (1, 8, 16, 32, 64, 128)
DTYPES = ("float32", "float16", "bfloat16")
COMMON = ("resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0")


def networks() -> Iterator[tuple[nn.Module, int]]:
    """Each network with the edge of its images."""
    for size in SIZES.values():
        yield ResNet(width=size.resnet_width), size.image_size
    yield ResNet(), 224
    yield ViT(), 224
    yield UNet(32), 128
    for name in COMMON:
        yield NETWORKS[name](), 224


def questions(model: nn.Module, edge: int) -> set[Convolution]:
    """What a training step asks."""

    def train(device: torch.device) -> Iterator[torch.Tensor]:
        model.to(device)
        images = torch.randn(2, 3, edge, edge).to(device)
        labels = [torch.zeros(2, dtype=torch.int64).to(device)] if isinstance(model, ResNet | ViT) else []
        loss = model(images, *labels).square().mean()
        loss.backward()
        yield loss

    answers(wanted_version()).known.clear()
    predict(train, gpu="A100-40GB", steps=1)
    return {question for _, question in answers(wanted_version()).known}


def main() -> None:
    asked = {
        replace(one, channels_last=last) for net in networks() for one in questions(*net) for last in (False, True)
    }
    capabilities = sorted({card.sm for card in CARDS.values()})
    client = ByCapability(installed.library())
    print(f"{len(asked)} convolutions, cuDNN {installed.version()}")
    order = shipped.places(BATCHES, DTYPES, capabilities)
    rows = {}
    for number, question in enumerate(sorted(asked, key=repr)):
        rows[question] = [
            client.ask(capability, replace(question, x=(batch, *question.x[1:]), dtype=dtype))
            for batch, dtype, capability in order
        ]
        if number % 100 == 0:
            print(number, flush=True)
    shipped.write(installed.version(), BATCHES, DTYPES, capabilities, rows)


if __name__ == "__main__":
    main()
