"""Ask the installed cuDNN what ships with memlab: python -m tests.published.ship

The convolutions are those of common networks and of the notebooks' ResNets and ViTs, for the usual batch sizes and
precisions and all cards. It takes some ten minutes, and says which cuDNN was asked.
"""

import sys
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import nn

from memlab.nets import ResNet, ViT
from memlab.run import predict
from memlab.sizes import SIZES
from memlab.vgpu import CARDS
from memlab.vgpu.convolutions.asking import wanted_version
from memlab.vgpu.cudnn import installed, shipped
from memlab.vgpu.cudnn.answers import answers
from memlab.vgpu.cudnn.client import ByCapability
from memlab.vgpu.cudnn.convolution import Convolution
from tests.published.networks import NETWORKS

BATCHES = (1, 8, 16, 32, 64, 128)  # of the common networks
OF_RESNETS = (8, 32, 64, 128, 256)  # in the notebooks
OF_VITS = (1, 2, 4, *BATCHES[1:], 256)
DTYPES = ("float32", "float16", "bfloat16")
FIRST_BFLOAT16 = 80  # ATen asks cuDNN for none on older cards
COMMON = ("resnet50", "vgg16")
LARGE = (
    (64, 128),
    (64, 32),
    (32, 64),
    (544, 32),
)  # large ResNets of the notebooks 02, 07 and 12: width, and edge of the images


@dataclass(frozen=True)
class Network:
    """A network with the edge of its images, its batch sizes, and how its convolutions run: a field and its values."""

    module: nn.Module
    edge: int
    batches: Sequence[int]
    switch: str


def networks() -> Iterator[Network]:
    """The notebooks' own, with any engine and with deterministic ones; the common ones in both memory formats."""
    resnets = [(size.resnet_width, size.image_size) for size in SIZES.values()]
    for width, edge in (*resnets, *LARGE):
        yield Network(ResNet(width=width), edge, OF_RESNETS, "deterministic")
    for size in SIZES.values():
        for width in sorted({size.width, 64}):
            vit = ViT(depth=1, width=width, heads=1, image=size.image_size, patch=size.patch)
            yield Network(vit, size.image_size, OF_VITS, "deterministic")
    for width in (192, 384, 768, 1024):  # ViT-Ti, S, B and L
        yield Network(ViT(depth=1, width=width, heads=1), 224, OF_VITS, "deterministic")
    for name in COMMON:
        yield Network(NETWORKS[name](), 224, BATCHES, "channels_last")


def questions(model: nn.Module, edge: int) -> set[Convolution]:
    """Return the convolutions that a training step asks cuDNN for."""

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


def wanted() -> dict[Convolution, set[int]]:
    """Return the questions, without batch and dtype, with the batches that each is needed for."""
    found: dict[Convolution, set[int]] = defaultdict(set)
    for network in networks():
        for one in questions(network.module, network.edge):
            for value in (False, True):
                found[replace(one, x=(0, *one.x[1:]), dtype="", **{network.switch: value})].update(network.batches)
    return found


def main() -> None:
    library = installed.library()
    if library is None:
        sys.exit("There is no cuDNN here that can be asked: pip install 'memlab[cudnn]', on Linux on x86-64.")
    asked = wanted()
    capabilities = sorted({card.sm for card in CARDS.values()})
    client = ByCapability(library)
    print(f"{len(asked)} convolutions, cuDNN {installed.version()}")

    def answer(capability: int) -> dict[tuple[int, Convolution], tuple[int, ...] | None]:
        """All that cards of this capability are asked; cuDNN runs in a process for each."""
        dtypes = [dtype for dtype in DTYPES if dtype != "bfloat16" or capability >= FIRST_BFLOAT16]
        each = (
            replace(question, x=(batch, *question.x[1:]), dtype=dtype)
            for question, batches in sorted(asked.items(), key=repr)
            for batch, dtype in product(sorted(batches), dtypes)
        )
        found = {(capability, question): client.ask(capability, question) for question in each}
        print(f"{capability}: {len(found)} answers", flush=True)
        return found

    with ThreadPoolExecutor(2) as pool:
        shipped.write(installed.version(), dict(ChainMap(*pool.map(answer, capabilities))))


if __name__ == "__main__":
    main()
