"""A multilayer perceptron whose blocks keep one tensor each for backward, which makes it easy to count."""

import torch
from torch import nn

from memlab.nets.checkpointing import run_layers


class MLP(nn.Module):
    """``depth`` times Linear and ReLU, all of one width.

    A block keeps one tensor for backward: its input. (The ReLU keeps its output, but that is the next
    block's input.) Its parameters are ``depth * (width**2 + width)`` floats.

    Args:
        depth: number of blocks.
        width: features in and out of every block.
        checkpoint_every: 0, or keep only the input of every so many blocks.
    """

    def __init__(self, depth: int, width: int, *, checkpoint_every: int = 0):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth))
        self.checkpoint_every = checkpoint_every

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, width)`` to ``(batch, width)``."""
        return run_layers(self.blocks, x, self.checkpoint_every)
