"""A GPT on bytes: the pre-norm decoder of GPT-2 (Radford et al. 2019), with the loss inside."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from memlab.errors import BadValue
from memlab.nets.checkpointing import run_layers

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _check_heads(width: int, heads: int) -> None:
    """Refuse a width that heads cannot share.

    Raises:
        BadValue: it is not a multiple of ``heads``.
    """
    if width % heads:
        raise BadValue(f"width={width} does not divide among heads={heads}: give a multiple of {heads}.")


class Attention(nn.Module):
    """Self-attention, all heads at once, by :meth:`mix`; if ``causal``, to the past alone."""

    def __init__(self, width: int, heads: int, causal: bool = True):
        super().__init__()
        _check_heads(width, heads)
        self.heads = heads
        self.causal = causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, tokens, width)`` to the same shape."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()
        mixed = self.mix(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def mix(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Three of ``(batch, heads, tokens, head size)`` to one; another function may be set in its place."""
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)


class Block(nn.Module):
    """Attention and a four times wider MLP, each after a LayerNorm and added to the residual stream."""

    def __init__(self, width: int, heads: int, causal: bool = True):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, tokens, width)`` to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """A language model that returns its mean cross-entropy in nats a token.

    Args:
        depth: number of blocks.
        width: size of the residual stream, a multiple of ``heads``.
        heads: attention heads in every block.
        context: the most tokens in a sequence.
        vocabulary: number of distinct tokens; 256 for bytes.
        checkpoint_every: 0, or keep only the input of every so many blocks for backward.
    """

    def __init__(
        self,
        *,
        depth: int = 12,
        width: int = 768,
        heads: int = 12,
        context: int = 1024,
        vocabulary: int = 256,
        checkpoint_every: int = 0,
    ):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(context, width)
        blocks = [Block(width, heads) for _ in range(depth)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token_embedding.weight
        self.checkpoint_every = checkpoint_every
        self.apply(initialize)
        for block in blocks:  # the residual stream adds up 2 * depth branches; GPT-2 scales each down
            for weight in (block.attention.out.weight, block.mlp[-1].get_parameter("weight")):
                nn.init.normal_(weight, std=0.02 / (2 * depth) ** 0.5)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor, loss: Loss | None = None) -> torch.Tensor:
        """``tokens`` and ``targets`` are int64 of shape ``(batch, tokens)``; the result is a scalar.

        ``loss(features, weight, targets)`` may compute it in another way from the input and the weight of the head.
        """
        if loss is not None:  # a name for the features would keep them where a loop moves backward's copy to the host
            return loss(self.features(tokens), self.head.weight, targets)
        logits = self.head(self.features(tokens))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def features(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the input of the head: ``(batch, tokens)`` to ``(batch, tokens, width)``."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        return self.norm(run_layers(self.blocks, x, self.checkpoint_every))


def initialize(module: nn.Module) -> None:
    """Draw the weight of a linear layer or an embedding as GPT-2 does, and set a bias to zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
