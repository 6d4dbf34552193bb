"""memlab's own nets, with every technique of the notebooks."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

from memlab.nets import GPT, MLP, ResNet, ViT
from memlab.techniques.chunked_loss import chunked_cross_entropy
from tests.loops.case import Case
from tests.loops.matrix.training import OPTIMIZERS, PRECISIONS, dtype_of, train


def cases() -> Iterator[Case]:
    """The nets, the most telling first."""
    # A few first, with the allocator's own trace: should time run out, these are worth the most.
    yield Case(gpt, {"depth": 12, "precision": "fp32"}, events=True)
    yield Case(gpt, {"depth": 12, "precision": "bf16"}, events=True)
    yield Case(gpt, {"depth": 12, "precision": "bf16", "checkpoint_every": 1}, events=True)
    yield Case(vit, {"precision": "bf16"}, events=True)
    yield Case(resnet, {"precision": "fp32"}, events=True)
    yield Case(resnet, {"precision": "bf16", "channels_last": True}, events=True)
    yield Case(mlp, {"precision": "fp32"}, events=True)

    for precision in PRECISIONS:
        for checkpoint_every in (0, 1, 4):
            yield Case(gpt, {"precision": precision, "checkpoint_every": checkpoint_every})
    for optimizer in (*OPTIMIZERS, "AdamW in backward"):
        for precision in ("fp32", "bf16"):
            yield Case(gpt, {"precision": precision, "optimizer": optimizer})
    for batch_size in (1, 2, 3, 7, 16, 33):
        for precision in ("fp32", "bf16"):
            yield Case(gpt, {"precision": precision, "batch_size": batch_size})
    for attention, precision in (
        ("math", "fp32"),
        ("efficient", "fp32"),
        ("math", "bf16"),
        ("efficient", "bf16"),
        ("flash", "bf16"),
        ("cudnn", "bf16"),
    ):
        yield Case(gpt, {"precision": precision, "attention": attention})
    for precision in ("fp32", "bf16"):
        yield Case(gpt, {"precision": precision, "loss": "chunked"})
        yield Case(gpt, {"precision": precision, "offload": True})
        yield Case(gpt, {"precision": precision, "accumulate": 2})
        yield Case(gpt, {"precision": precision, "accumulate": 8})
    for settings in ({"precision": "fp32"}, {"precision": "bf16", "checkpoint_every": 1}, {"precision": "bf16"}):
        yield Case(gpt, settings, allocator="expandable_segments:True")
    for precision in ("fp32", "bf16"):
        yield Case(gpt, {"precision": precision, "optimizer": "AdamW 8-bit"}, needs="torchao")
    for context in (128, 333, 2048):
        yield Case(gpt, {"precision": "bf16", "context": context})
    for width, heads in ((512, 8), (1280, 20), (720, 12)):
        yield Case(gpt, {"precision": "bf16", "width": width, "heads": heads})
    yield Case(
        gpt,
        {"precision": "pure bf16", "checkpoint_every": 1, "optimizer": "AdamW in backward", "loss": "chunked"},
    )
    for precision in ("fp32", "fp16", "bf16"):
        for batch_size in (5, 32):
            yield Case(vit, {"precision": precision, "batch_size": batch_size})
    yield Case(vit, {"precision": "bf16", "checkpoint_every": 1})
    for precision in ("fp32", "bf16"):
        for batch_size in (7, 128):
            yield Case(resnet, {"precision": precision, "batch_size": batch_size})
    yield Case(resnet, {"precision": "fp32", "inplace": True})
    for precision in PRECISIONS:
        yield Case(mlp, {"precision": precision, "batch_size": 1000})
    yield Case(mlp, {"precision": "fp32", "checkpoint_every": 4})
    yield Case(mlp, {"precision": "fp32", "optimizer": "SGD"})


def gpt(
    device: torch.device,
    *,
    depth: int = 4,
    width: int = 768,
    heads: int = 12,
    context: int = 1024,
    vocabulary: int = 50257,
    batch_size: int = 8,
    precision: str = "fp32",
    checkpoint_every: int = 0,
    optimizer: str = "AdamW",
    attention: str = "default",
    loss: str = "plain",
    offload: bool = False,
    accumulate: int = 1,
) -> Iterator[torch.Tensor]:
    """A GPT on random tokens. ``batch_size`` sequences a step, in ``accumulate`` parts."""
    shape = {"depth": depth, "width": width, "heads": heads, "context": context, "vocabulary": vocabulary}
    model = GPT(**shape, checkpoint_every=checkpoint_every)
    part = batch_size // accumulate

    def forward() -> torch.Tensor:
        tokens = torch.randint(vocabulary, (part, context)).to(device)
        if loss == "chunked":
            return chunked_loss(model, tokens, tokens)
        return model(tokens, tokens)

    yield from train(model, forward, device, precision, optimizer, attention, offload, accumulate)


def vit(
    device: torch.device,
    *,
    batch_size: int = 32,
    precision: str = "fp32",
    checkpoint_every: int = 0,
    optimizer: str = "AdamW",
) -> Iterator[torch.Tensor]:
    """ViT-B/16 on random images of 224 pixels."""
    model = ViT(checkpoint_every=checkpoint_every)
    yield from train(model, partial(_classify, model, device, batch_size, 224), device, precision, optimizer)


def resnet(
    device: torch.device,
    *,
    batch_size: int = 64,
    precision: str = "fp32",
    optimizer: str = "SGD momentum",
    inplace: bool = False,
    channels_last: bool = False,
    image: int = 64,
) -> Iterator[torch.Tensor]:
    """A ResNet-18 on random images."""
    model = ResNet(inplace=inplace)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    yield from train(model, partial(_classify, model, device, batch_size, image), device, precision, optimizer)


def mlp(
    device: torch.device,
    *,
    depth: int = 16,
    width: int = 2048,
    batch_size: int = 4096,
    precision: str = "fp32",
    checkpoint_every: int = 0,
    optimizer: str = "AdamW",
) -> Iterator[torch.Tensor]:
    """Linear and ReLU, ``depth`` times."""
    model = MLP(depth, width, checkpoint_every=checkpoint_every)

    def forward() -> torch.Tensor:
        return model(torch.randn(batch_size, width).to(device, dtype_of(model))).square().mean()

    yield from train(model, forward, device, precision, optimizer)


def chunked_loss(model: GPT, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A GPT's loss, its logits made in parts."""
    return chunked_cross_entropy(model.features(tokens), model.head.weight, targets)


def _classify(model: nn.Module, device: torch.device, batch_size: int, image: int) -> torch.Tensor:
    images = torch.randn(batch_size, 3, image, image).to(device, dtype_of(model))
    return model(images, torch.zeros(batch_size, dtype=torch.int64).to(device))
