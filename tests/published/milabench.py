"""Predictions beside what Mila's benchmark suite published of a real H100, L40S and H200.

``python -m tests.published.milabench`` prints them.
Its networks are torchvision's, and there is no torchvision for PyTorch without CUDA; so this runs in the environment of
`make test-cuda`, with `pip install --no-deps torchvision==0.28.0` (for PyTorch 2.13). The source asks for no plans by
time, and pins PyTorch 2.6.0 and cuDNN 9.5.1, which is too old to be asked without a device.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision import models

from tests.published.speeds import times
from tests.published.totals import report

FILES = [Path(__file__).with_name(f"milabench_{card}.json") for card in ("h100", "h200", "l40s")]


def train(device: torch.device, *, network: str, batch_size: int) -> Iterator[torch.Tensor]:
    """One of the suite's runs: a network, with its precision behind a hyphen, or ``noio``: one batch for all steps."""
    name, _, kind = network.partition("-")
    precision = kind if name == "convnext_large" else "tf32-fp16"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "tf32" in precision
    half, layout = "fp16" in precision, torch.channels_last if name == "resnet50" else torch.preserve_format
    model = getattr(models, name)().to(device).to(memory_format=layout)
    optimizer, criterion = torch.optim.SGD(model.parameters(), 0.01), nn.CrossEntropyLoss().to(device)
    scaler = torch.amp.GradScaler(device.type, enabled=half)
    as_taken: dict[str, Any] = {"dtype": torch.float16 if half else torch.float32, "memory_format": layout}
    for images, labels in _fixed(model, batch_size, device) if kind == "noio" else _loaded(batch_size):
        pixels, targets = images.to(device, **as_taken), labels.to(device)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16, enabled=half):
            loss = criterion(model(pixels), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        yield loss


def _loaded(batch_size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        yield torch.empty(batch_size, 3, 224, 224), torch.zeros(batch_size, dtype=torch.int64)


def _fixed(model: nn.Module, batch_size: int, device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    images = torch.randn(batch_size, 3, 244, 244, device=device)  # 244, as it stands there
    labels = torch.rand_like(model(images))
    while True:
        yield images, labels


if __name__ == "__main__":
    for file in FILES:
        report(file, train)
        print(*times(file, train), sep="\n", end="\n\n")
