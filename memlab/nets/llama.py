"""A Llama (Touvron et al. 2023; grouped-query attention as in Llama 2 and 3), with the loss inside."""

import torch
from torch import nn
from torch.nn import functional as F

from memlab.nets.checkpointing import run_layers
from memlab.nets.gpt import initialize


class RotaryAttention(nn.Module):
    """Causal self-attention whose queries and keys are rotated by their position; several heads share keys and values.

    Args:
        width: size of the residual stream, a multiple of ``heads``.
        heads: of queries, a multiple of ``kv_heads``.
        kv_heads: of keys and values.
        base: of the angles: the slowest pair of numbers turns by about 1 / base a position.
        bias: whether queries, keys and values have one, as Qwen2's do.
    """

    def __init__(self, width: int, heads: int, kv_heads: int, base: float, *, bias: bool = False):
        super().__init__()
        size = width // heads
        self.heads, self.kv_heads, self.base = heads, kv_heads, base
        self.query = nn.Linear(width, heads * size, bias=bias)
        self.key = nn.Linear(width, kv_heads * size, bias=bias)
        self.value = nn.Linear(width, kv_heads * size, bias=bias)
        self.out = nn.Linear(heads * size, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, tokens, width)`` to the same shape."""
        batch, tokens, _ = x.shape
        query, key, value = (
            project(x).view(batch, tokens, heads, -1).transpose(1, 2)
            for project, heads in ((self.query, self.heads), (self.key, self.kv_heads), (self.value, self.kv_heads))
        )
        query, key = rotate(query, self.base), rotate(key, self.base)
        groups = self.heads // self.kv_heads
        key, value = (shared.repeat_interleave(groups, dim=1) for shared in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))


def rotate(x: torch.Tensor, base: float, positions: torch.Tensor | None = None) -> torch.Tensor:
    """Rotary position embedding (Su et al. 2021): pairs of numbers turn by an angle that grows with the position.

    Args:
        x: ``(batch, heads, tokens, head size)``; number i is paired with number i + head size / 2.
        base: pair i turns by ``base ** (-2 * i / head size)`` a position.
        positions: ``(tokens,)``, of a part of a sequence; otherwise they count from 0.

    Returns:
        The same shape.
    """
    half = x.shape[-1] // 2
    speeds = base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    angles = positions[:, None] * speeds
    cos, sin = (torch.cat([part, part], dim=-1).to(x.dtype) for part in (angles.cos(), angles.sin()))
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class SwiGLU(nn.Module):
    """The gated MLP of Shazeer 2020: ``down(silu(gate(x)) * up(x))``, without biases."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, tokens, width)`` to the same shape."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class LlamaBlock(nn.Module):
    """Attention and a gated MLP, each after an RMSNorm and added to the residual stream."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int, base: float, *, bias: bool = False):
        super().__init__()
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.attention = RotaryAttention(width, heads, kv_heads, base, bias=bias)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-5)
        self.mlp = SwiGLU(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, tokens, width)`` to the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """A language model that returns its mean cross-entropy in nats a token.

    Args:
        depth: number of blocks.
        width: size of the residual stream, a multiple of ``heads``.
        heads: heads of queries in every block, a multiple of ``kv_heads``.
        kv_heads: heads of keys and values.
        hidden: size of the MLP's inner layer.
        vocabulary: number of distinct tokens; 256 for bytes.
        tied: whether the head uses the embedding's weight.
        base: of the rotary position embedding.
        bias: whether queries, keys and values have one, as Qwen2's do.
        checkpoint_every: 0, or keep only the input of every so many blocks for backward.
    """

    def __init__(
        self,
        *,
        depth: int = 16,
        width: int = 2048,
        heads: int = 32,
        kv_heads: int = 8,
        hidden: int = 8192,
        vocabulary: int = 256,
        tied: bool = True,
        base: float = 500_000.0,
        bias: bool = False,
        checkpoint_every: int = 0,
    ):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads, hidden, base, bias=bias) for _ in range(depth))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(initialize)
        if tied:
            self.head.weight = self.token_embedding.weight
        self.checkpoint_every = checkpoint_every

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """``tokens`` and ``targets`` are int64 of shape ``(batch, tokens)``; the result is a scalar."""
        logits = self.head(self.features(tokens))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def features(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the input of the head: ``(batch, tokens)`` to ``(batch, tokens, width)``."""
        return self.norm(run_layers(self.blocks, self.token_embedding(tokens), self.checkpoint_every))
