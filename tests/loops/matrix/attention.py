"""Attention: every backend, precision, head size and mask, groups of queries, dropout, odd and unequal lengths."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

from tests.loops.case import Case
from tests.loops.matrix.training import ATTENTION, dtype_of, train

WIDTH = 512  # of the layers that torch.nn brings


def cases() -> Iterator[Case]:
    """One function with every setting that decides its kernels; then the layers of torch.nn."""
    for backend in ATTENTION:
        for precision in ("fp32", "fp16", "bf16", "pure bf16"):
            if precision != "fp32" or backend in ("math", "efficient"):
                yield Case(attention, {"backend": backend, "precision": precision})
    for precision in ("fp32", "bf16"):
        for mask in ("causal", "bool", "padding", "float", "bias"):
            yield Case(attention, {"precision": precision, "mask": mask})
        for head in (16, 20, 33, 80, 96, 128, 160, 256):
            yield Case(attention, {"precision": precision, "head": head})
        for length in (1, 77, 1000):
            yield Case(attention, {"precision": precision, "length": length, "mask": "causal"})
        yield Case(attention, {"precision": precision, "dropout": 0.1, "mask": "causal"})
        yield Case(attention, {"precision": precision, "key_heads": 2, "mask": "causal"})
        yield Case(attention, {"precision": precision, "keys": 333})
        yield Case(multi_head, {"precision": precision})
        yield Case(multi_head, {"precision": precision, "weights": True, "dropout": 0.1})
        yield Case(encoder, {"precision": precision})
        yield Case(encoder, {"precision": precision, "norm_first": True, "padding": True, "activation": "gelu"})
        yield Case(transformer, {"precision": precision})
    for mask in ("causal", "bool", "float", "bias"):
        yield Case(attention, {"backend": "math", "precision": "bf16", "mask": mask, "dropout": 0.1})
    yield Case(attention, {"backend": "efficient", "precision": "bf16", "mask": "bias", "length": 77})
    yield Case(attention, {"backend": "efficient", "precision": "fp32", "mask": "bias", "length": 77, "dropout": 0.2})
    yield Case(attention, {"backend": "math", "precision": "bf16", "key_heads": 2})
    yield Case(attention, {"backend": "math", "precision": "fp32", "key_heads": 1, "mask": "padding"})
    yield Case(attention, {"backend": "flash", "precision": "bf16", "key_heads": 2, "head": 128, "length": 333})
    yield Case(attention, {"precision": "fp32", "batch_size": 1, "heads": 1, "length": 4096, "head": 32})
    yield Case(attention, {"precision": "bf16", "batch_size": 1, "heads": 1, "length": 4096, "head": 32})


class _Attention(nn.Module):
    def __init__(self, head: int, heads: int, key_heads: int, mask: str, dropout: float, length: int, keys: int):
        super().__init__()
        width = head * heads
        self.head, self.mask, self.dropout = head, mask, dropout
        self.grouped = key_heads != heads
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = (nn.Linear(width, head * key_heads, bias=False) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(1, heads, length, keys)) if mask == "bias" else None

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(tensor).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for layer, tensor in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self._masked(query, key),
            dropout_p=self.dropout,
            is_causal=self.mask == "causal",
            enable_gqa=self.grouped,
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _masked(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
        batch, length, keys = query.shape[0], query.shape[2], key.shape[2]
        if self.bias is not None:
            return self.bias.to(query.dtype)
        if self.mask == "padding":
            return torch.ones(batch, 1, 1, keys, dtype=torch.bool, device=query.device)
        if self.mask in ("bool", "float"):
            dtype = torch.bool if self.mask == "bool" else query.dtype
            return torch.ones(batch, 1, length, keys, dtype=dtype, device=query.device)
        return None


def attention(
    device: torch.device,
    *,
    backend: str = "default",
    precision: str = "fp32",
    head: int = 64,
    heads: int = 8,
    key_heads: int = 0,
    length: int = 256,
    keys: int = 0,
    mask: str = "none",
    dropout: float = 0.0,
    batch_size: int = 4,
) -> Iterator[torch.Tensor]:
    """One attention between Linears; ``key_heads`` and ``keys`` are those of the queries where they are 0."""
    model = _Attention(head, heads, key_heads or heads, mask, dropout, length, keys or length)

    def forward() -> torch.Tensor:
        x, memory = (
            torch.randn(batch_size, n, head * heads).to(device, dtype_of(model)) for n in (length, keys or length)
        )
        return model(x, memory).float().square().mean()

    yield from train(model, forward, device, precision, "SGD", backend)


def multi_head(
    device: torch.device,
    *,
    precision: str = "fp32",
    weights: bool = False,
    dropout: float = 0.0,
    batch_size: int = 8,
    length: int = 200,
) -> Iterator[torch.Tensor]:
    """``nn.MultiheadAttention`` on itself, with padding; ``weights``: it returns its weights too."""
    model = nn.MultiheadAttention(WIDTH, 8, dropout=dropout, batch_first=True)

    def forward() -> torch.Tensor:
        x = torch.randn(batch_size, length, WIDTH).to(device, dtype_of(model))
        padding = torch.zeros(batch_size, length, dtype=torch.bool).to(device)
        mixed, shares = model(x, x, x, key_padding_mask=padding, need_weights=weights)
        loss = mixed.float().square().mean()
        return loss + shares.float().amax() if weights else loss

    yield from train(model, forward, device, precision, "AdamW")


def encoder(
    device: torch.device,
    *,
    precision: str = "fp32",
    norm_first: bool = False,
    padding: bool = False,
    activation: str = "relu",
    batch_size: int = 8,
    length: int = 200,
) -> Iterator[torch.Tensor]:
    """Two ``nn.TransformerEncoderLayer``, with their dropout."""
    layer = nn.TransformerEncoderLayer(
        WIDTH, 8, 4 * WIDTH, activation=activation, batch_first=True, norm_first=norm_first
    )
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward() -> torch.Tensor:
        x = torch.randn(batch_size, length, WIDTH).to(device, dtype_of(model))
        mask = torch.zeros(batch_size, length, dtype=torch.bool).to(device) if padding else None
        return model(x, src_key_padding_mask=mask).float().square().mean()

    yield from train(model, forward, device, precision, "AdamW")


def transformer(
    device: torch.device, *, precision: str = "fp32", batch_size: int = 6, source: int = 120, target: int = 90
) -> Iterator[torch.Tensor]:
    """``nn.Transformer``, an encoder and a decoder of a layer each, the decoder causal."""
    model = nn.Transformer(WIDTH, 8, 1, 1, 4 * WIDTH, batch_first=True)

    def forward() -> torch.Tensor:
        x, y = (torch.randn(batch_size, n, WIDTH).to(device, dtype_of(model)) for n in (source, target))
        causal = nn.Transformer.generate_square_subsequent_mask(target, device=device)
        return model(x, y, tgt_mask=causal, tgt_is_causal=True).float().square().mean()

    yield from train(model, forward, device, precision, "AdamW")
