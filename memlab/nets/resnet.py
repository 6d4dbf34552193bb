"""A residual network for images (He et al. 2016), for small ones or as published, with the loss inside."""

import torch
from torch import nn
from torch.nn import functional as F

from memlab.nets.checkpointing import run_layers


class Residual(nn.Module):
    """Two convolutions of 3 x 3, each with BatchNorm, added to the input (or to a 1 x 1 convolution of it)."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1, inplace: bool = False):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace)
        same = stride == 1 and channels_in == channels
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, channels_in, height, width)`` to ``(batch, channels, height / stride, width / stride)``."""
        y = self.relu(self.first_norm(self.first(x)))
        return self.relu(self.second_norm(self.second(y)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, each with BatchNorm, added to the input (or to a convolution of it).

    The 3 x 3 convolution has a quarter of the channels, and the stride: PyTorch's variant, also called version 1.5.
    """

    def __init__(self, channels_in: int, channels: int, stride: int = 1, inplace: bool = False):
        super().__init__()
        inner = channels // 4
        self.first = nn.Conv2d(channels_in, inner, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(inner)
        self.second = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(inner)
        self.third = nn.Conv2d(inner, channels, 1, bias=False)
        self.third_norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            projection = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, channels_in, height, width)`` to ``(batch, channels, height / stride, width / stride)``."""
        y = self.relu(self.first_norm(self.first(x)))
        y = self.relu(self.second_norm(self.second(y)))
        return self.relu(self.third_norm(self.third(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """An image classifier that returns its mean cross-entropy in nats an image.

    Args:
        blocks: residual blocks in each stage; each stage after the first halves the image and doubles the channels.
        width: channels of the first stage; with ``bottleneck`` its blocks give four times as many.
        bottleneck: whether blocks are as in ResNet-50 and larger ones.
        large_images: whether the image is first made four times smaller, as published for 224 x 224 pixels.
        channels: of an image.
        classes: number of distinct labels.
        inplace: whether the activations overwrite their inputs.
        checkpoint_every: 0, or keep only the input of every so many blocks for backward.
    """

    def __init__(
        self,
        *,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
        width: int = 64,
        bottleneck: bool = False,
        large_images: bool = False,
        channels: int = 3,
        classes: int = 10,
        inplace: bool = False,
        checkpoint_every: int = 0,
    ):
        super().__init__()
        size, stride = (7, 2) if large_images else (3, 1)
        convolution = nn.Conv2d(channels, width, size, stride, padding=size // 2, bias=False)
        self.stem = nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(inplace))
        if large_images:
            self.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        kind, expansion = (Bottleneck, 4) if bottleneck else (Residual, 1)
        self.blocks = nn.ModuleList()
        channels = width
        for stage, count in enumerate(blocks):
            for index in range(count):
                wanted = expansion * width * 2**stage
                stride = 2 if stage > 0 and index == 0 else 1
                self.blocks.append(kind(channels, wanted, stride, inplace))
                channels = wanted
        self.head = nn.Linear(channels, classes)
        self.checkpoint_every = checkpoint_every

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """``images`` are ``(batch, channels, height, width)``, ``labels`` int64 ``(batch,)``; the result a scalar."""
        x = run_layers(self.blocks, self.stem(images), self.checkpoint_every)
        return F.cross_entropy(self.head(x.mean(dim=(2, 3))), labels)
