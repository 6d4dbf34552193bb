"""The vision transformer of Dosovitskiy et al. 2021, with the loss inside."""

import torch
from torch import nn
from torch.nn import functional as F

from memlab.nets.checkpointing import run_layers
from memlab.nets.gpt import Block


class ViT(nn.Module):
    """An image classifier that returns its mean cross-entropy in nats an image.

    The image is cut into patches, which become tokens; a learned token before them, the class token, is classified
    after the last block.

    Args:
        depth: number of blocks.
        width: size of the residual stream, a multiple of ``heads``.
        heads: attention heads in every block.
        image: height and width of an image in pixels, a multiple of ``patch``.
        patch: height and width of a patch in pixels.
        channels: of an image.
        classes: number of distinct labels.
        checkpoint_every: 0, or keep only the input of every so many blocks for backward.
    """

    def __init__(
        self,
        *,
        depth: int = 12,
        width: int = 768,
        heads: int = 12,
        image: int = 224,
        patch: int = 16,
        channels: int = 3,
        classes: int = 10,
        checkpoint_every: int = 0,
    ):
        super().__init__()
        self.patches = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(width))
        self.positions = nn.Parameter(0.02 * torch.randn(1 + (image // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads, causal=False) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.checkpoint_every = checkpoint_every

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """``images`` are ``(batch, channels, image, image)``, ``labels`` int64 ``(batch,)``; the result is a scalar."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(patches), 1, -1), patches], dim=1) + self.positions
        x = run_layers(self.blocks, x, self.checkpoint_every)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]), labels)
