"""Small nets and data that several loops share."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp() -> nn.Sequential:
    """64 numbers in, 10 out."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def convnet(width: int = 16) -> nn.Sequential:
    """A picture ``[batch, 3, 32, 32]`` in, 10 numbers out."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def rows(count: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """Points ``[count, 64]`` and their classes."""
    return torch.randn(count, 64), torch.randint(0, 10, (count,))


def pictures(count: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures ``[count, 3, 32, 32]`` and their classes."""
    return torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, count: int = 512) -> torch.Tensor:
    """One step of classifying points; its loss."""
    x, y = (tensor.to(device) for tensor in rows(count))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
