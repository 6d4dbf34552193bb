"""The sizes of the notebooks' models: three, defined in this one place."""

import os
from dataclasses import dataclass

from memlab.errors import BadValue


@dataclass(frozen=True)
class Size:
    """The sizes that the notebooks share. Bytes and times follow from them, they are not chosen.

    ``lr`` is the learning rate with which AdamW trains a GPT of this size without a warm-up. In its first step AdamW
    moves every weight by the whole rate, which is easily too far for a wide and deep model: its loss then rises, and
    gradients overflow in float16.
    """

    name: str
    depth: int
    width: int
    heads: int
    context: int
    batch_size: int
    steps: int
    mlp_batch_size: int
    mlp_width: int
    image_size: int
    patch: int
    image_batch_size: int
    resnet_width: int
    lr: float


SIZES = {
    size.name: size
    for size in (
        Size(
            name="ci",
            depth=4,
            width=64,
            heads=2,
            context=64,
            batch_size=8,
            steps=150,
            mlp_batch_size=256,
            mlp_width=64,
            image_size=16,
            patch=4,
            image_batch_size=32,
            resnet_width=8,
            lr=1e-3,
        ),
        Size(
            name="cpu",
            depth=16,
            width=64,
            heads=2,
            context=128,
            batch_size=8,
            steps=60,
            mlp_batch_size=2048,
            mlp_width=128,
            image_size=32,
            patch=8,
            image_batch_size=64,
            resnet_width=16,
            lr=1e-3,
        ),
        Size(
            name="gpu",
            depth=16,
            width=768,
            heads=12,
            context=1024,
            batch_size=8,
            steps=30,
            mlp_batch_size=16384,
            mlp_width=512,
            image_size=64,
            patch=8,
            image_batch_size=128,
            resnet_width=64,
            lr=1e-5,
        ),
    )
}


def size() -> Size:
    """The size named by ``MEMLAB_SIZE``, else ``gpu`` where CUDA is available, else ``cpu``.

    Raises:
        BadValue: ``MEMLAB_SIZE`` names none of the three.
    """
    name = os.environ.get("MEMLAB_SIZE") or _default()
    if name not in SIZES:
        raise BadValue(f"MEMLAB_SIZE={name!r} is not a size: set it to {', '.join(SIZES)}, or leave it unset.")
    return SIZES[name]


def _default() -> str:
    import torch

    return "gpu" if torch.cuda.is_available() else "cpu"
