"""Predictions beside published totals of timm's train.py on a real GPU: python -m tests.published.timm_models

First the networks of attention and MLPs, which have one convolution, for patches. train.py lets cuDNN choose its
plans by time, which no prediction knows; dense convolutions show how far off that is, with the context of the first.
timm needs torchvision, and there is none for PyTorch without CUDA; so this runs in the environment of `make test-cuda`,
with `pip install --no-deps timm torchvision==0.28.0` (for PyTorch 2.13).
"""

from collections.abc import Iterator
from pathlib import Path

import timm
import torch
from torch import nn

from tests.published.totals import report

FILE = Path(__file__).with_name("timm_models.json")
DENSE = FILE.with_name("timm_convolutions.json")


def images(device: torch.device, batch_size: int, edge: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches as timm's PrefetchLoader has them: brought to the card one step ahead, on a stream of their own."""
    stream = torch.cuda.Stream(device)
    mean, std = torch.zeros(1, 3, 1, 1, device=device), torch.ones(1, 3, 1, 1, device=device)
    ahead = None
    while True:
        with torch.cuda.stream(stream):
            pixels = torch.zeros(batch_size, 3, edge, edge, dtype=torch.uint8).to(device)
            labels = torch.zeros(batch_size, dtype=torch.int64).to(device)
            pixels = pixels.to(torch.float32).sub_(mean).div_(std)
        if ahead:
            yield ahead
        torch.cuda.current_stream(device).wait_stream(stream)
        ahead = pixels, labels


def train(device: torch.device, *, network: str, batch_size: int) -> Iterator[torch.Tensor]:
    """train.py without options: float32, SGD with momentum, gradients dropped after each step."""
    model = timm.create_model(network).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=2e-5)
    criterion = nn.CrossEntropyLoss()
    for pixels, labels in images(device, batch_size, model.default_cfg["input_size"][-1]):
        loss = criterion(model(pixels), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


if __name__ == "__main__":
    report(DENSE, train, report(FILE, train))
