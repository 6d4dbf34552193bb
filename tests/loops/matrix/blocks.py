"""Parts of transformers: norms, MLPs, experts, rotary positions, caches of keys and values, adapters, tied weights."""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

from memlab.nets import GPT
from memlab.techniques.lora import add_lora
from tests.loops.case import Case
from tests.loops.matrix.training import dtype_of, train

VOCABULARY = 5000
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,
    "layer without bias": lambda width: nn.LayerNorm(width, bias=False),
    "layer plain": lambda width: nn.LayerNorm(width, elementwise_affine=False),
    "rms": nn.RMSNorm,
    "rms by hand": lambda width: _RootMeanSquare(width),
}
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "squared relu": lambda x: F.relu(x).square(),
    "gelu by hand": lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x.pow(3)))),
}


def cases() -> Iterator[Case]:
    """Each part alone, in float32 and mixed precision, and what is made of them."""
    for precision in ("fp32", "bf16"):
        for norm in NORMS:
            yield Case(mlp_block, {"precision": precision, "norm": norm})
        for activation in ("gelu tanh", "silu", "squared relu", "gelu by hand"):
            yield Case(mlp_block, {"precision": precision, "activation": activation})
        yield Case(mlp_block, {"precision": precision, "gated": True, "activation": "silu", "bias": False})
        yield Case(mlp_block, {"precision": precision, "dropout": 0.1, "width": 500, "batch_size": 3})
        for way in ("loop", "dense", "grouped"):
            yield Case(experts, {"precision": precision, "way": way})
        yield Case(rotary, {"precision": precision})
        yield Case(rotary, {"precision": precision, "complex_numbers": True})
        yield Case(language_model, {"precision": precision, "tied": True})
        yield Case(language_model, {"precision": precision, "label_smoothing": 0.1, "ignored": True})
        yield Case(low_rank, {"precision": precision})
    for precision in ("tf32", "fp16", "pure bf16"):
        yield Case(mlp_block, {"precision": precision})
    for norm in ("layer", "rms"):
        yield Case(mlp_block, {"precision": "pure bf16", "norm": norm, "width": 1000, "batch_size": 1})
        yield Case(mlp_block, {"precision": "fp32", "norm": norm, "width": 256, "tokens": 4096})
    yield Case(mlp_block, {"precision": "bf16", "checkpointed": True, "dropout": 0.1})
    yield Case(mlp_block, {"precision": "bf16", "accumulate": 4})
    for precision in ("fp32", "pure bf16"):
        for growing in (True, False):
            yield Case(decoding, {"precision": precision, "growing": growing})
    for settings in ({"precision": "fp16", "accumulate": 2}, {"precision": "fp16", "offload": True}):
        yield Case(language_model, settings)
    yield Case(eight_bits, {})
    yield Case(eight_bits, {"rows": True})


class _RootMeanSquare(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class _Block(nn.Module):
    def __init__(self, width: int, norm: str, activation: str, gated: bool, bias: bool, dropout: float):
        super().__init__()
        self.norm, self.act = NORMS[norm](width), ACTIVATIONS[activation]
        self.up, self.down = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)
        self.gate = nn.Linear(width, 4 * width, bias) if gated else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        hidden = self.act(self.up(normed) if self.gate is None else self.gate(normed))
        if self.gate is not None:
            hidden = hidden * self.up(normed)
        return x + self.dropout(self.down(hidden))


def mlp_block(
    device: torch.device,
    *,
    precision: str = "fp32",
    norm: str = "layer",
    activation: str = "gelu",
    gated: bool = False,
    bias: bool = True,
    dropout: float = 0.0,
    width: int = 512,
    tokens: int = 256,
    batch_size: int = 8,
    checkpointed: bool = False,
    accumulate: int = 1,
) -> Iterator[torch.Tensor]:
    """Three blocks of a norm, a Linear, an activation and a Linear, with a residual."""
    model = nn.ModuleList(_Block(width, norm, activation, gated, bias, dropout) for _ in range(3))

    def forward() -> torch.Tensor:
        x = torch.randn(batch_size, tokens, width).to(device, dtype_of(model))
        for block in model:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        return x.float().square().mean()

    yield from train(model, forward, device, precision, "AdamW", accumulate=accumulate)


class _Experts(nn.Module):
    def __init__(self, width: int, count: int, way: str):
        super().__init__()
        self.count, self.way = count, way
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.zeros(count, width, 2 * width))
        self.down = nn.Parameter(torch.zeros(count, 2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).float().softmax(-1).topk(2)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        return {"loop": self._loop, "dense": self._dense, "grouped": self._grouped}[self.way](x, weights, chosen)

    def _loop(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        # Each expert's share is as large as if tokens were spread evenly: what numbers say is not to decide sizes.
        out, share = torch.zeros_like(x), chosen.numel() // self.count
        order = chosen.flatten().argsort()
        for expert in range(self.count):
            slots = order[expert * share : (expert + 1) * share]
            tokens = slots // 2
            hidden = F.silu(x[tokens] @ self.up[expert]) @ self.down[expert]
            out.index_add_(0, tokens, (hidden * weights.flatten()[slots, None]).to(out.dtype))
        return out

    def _dense(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        shares = (F.one_hot(chosen, self.count).to(x.dtype) * weights[..., None]).sum(1)
        hidden = F.silu(torch.einsum("td,edh->teh", x, self.up))
        return torch.einsum("teh,ehd,te->td", hidden, self.down, shares)

    def _grouped(self, x: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        order = chosen.flatten().argsort()
        gathered = x[order // 2].view(self.count, -1, x.shape[-1])
        hidden = torch.bmm(F.silu(torch.bmm(gathered, self.up)), self.down).flatten(0, 1)
        hidden = hidden * weights.flatten()[order, None]
        return torch.zeros_like(x).scatter_add(0, (order // 2)[:, None].expand(-1, x.shape[-1]), hidden.to(x.dtype))


def experts(
    device: torch.device, *, precision: str = "fp32", way: str = "loop", width: int = 256, tokens: int = 2048
) -> Iterator[torch.Tensor]:
    """A mixture of eight experts, two a token, by a loop over experts, every expert for every token, or in groups."""
    model = _Experts(width, 8, way)

    def forward() -> torch.Tensor:
        return model(torch.randn(tokens, width).to(device, dtype_of(model))).float().square().mean()

    yield from train(model, forward, device, precision, "AdamW")


class _Rotary(nn.Module):
    def __init__(self, width: int, heads: int, complex_numbers: bool):
        super().__init__()
        self.heads, self.complex_numbers = heads, complex_numbers
        self.qkv = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head = x.shape[-1] // self.heads
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, head)).permute(2, 0, 3, 1, 4)
        frequencies = 10000 ** (-torch.arange(0, head, 2, device=x.device).float() / head)
        angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), frequencies)
        turn = self._by_complex_numbers if self.complex_numbers else self._by_halves
        mixed = F.scaled_dot_product_attention(turn(query, angles), turn(key, angles), value, is_causal=True)
        return x + mixed.transpose(1, 2).flatten(2)

    def _by_halves(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        cos, sin = (torch.cat([part, part], -1).to(x.dtype) for part in (angles.cos(), angles.sin()))
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def _by_complex_numbers(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def rotary(
    device: torch.device,
    *,
    precision: str = "fp32",
    complex_numbers: bool = False,
    width: int = 512,
    tokens: int = 256,
    batch_size: int = 4,
) -> Iterator[torch.Tensor]:
    """Attention with rotary positions, by halves or by complex numbers."""
    model = _Rotary(width, 8, complex_numbers)

    def forward() -> torch.Tensor:
        return model(torch.randn(batch_size, tokens, width).to(device, dtype_of(model))).float().square().mean()

    yield from train(model, forward, device, precision, "AdamW")


def language_model(
    device: torch.device,
    *,
    precision: str = "fp32",
    tied: bool = False,
    label_smoothing: float = 0.0,
    ignored: bool = False,
    accumulate: int = 1,
    offload: bool = False,
    width: int = 256,
    tokens: int = 256,
    batch_size: int = 8,
) -> Iterator[torch.Tensor]:
    """An embedding, a Linear, and the loss over the vocabulary; ``tied``: one weight for both ends."""
    embedding, head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY, bias=False)
    if tied:
        head.weight = embedding.weight
    model = nn.Sequential(embedding, nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), head)

    def forward() -> torch.Tensor:
        ids = torch.randint(VOCABULARY, (batch_size, tokens)).to(device)
        targets = ids.masked_fill(ids < 10, -100) if ignored else ids
        return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten(), label_smoothing=label_smoothing)

    yield from train(model, forward, device, precision, "AdamW", offload=offload, accumulate=accumulate)


def low_rank(device: torch.device, *, precision: str = "fp32", rank: int = 8) -> Iterator[torch.Tensor]:
    """A frozen GPT with low-rank adapters in its attention."""
    model = GPT(depth=2, width=256, heads=4, context=128, vocabulary=VOCABULARY)
    add_lora(model, ["qkv", "out"], rank=rank)

    def forward() -> torch.Tensor:
        ids = torch.randint(VOCABULARY, (8, 128)).to(device)
        return model(ids, ids)

    yield from train(model, forward, device, precision, "AdamW")


def decoding(
    device: torch.device, *, precision: str = "fp32", growing: bool = True, width: int = 512, batch_size: int = 8
) -> Iterator[torch.Tensor]:
    """Sixteen tokens after a prompt of 240, with a cache of keys and values that grows or is there from the start."""
    dtype = torch.bfloat16 if precision == "pure bf16" else torch.float32
    qkv, out = (nn.Linear(width, n * width).to(device, dtype) for n in (3, 1))
    while True:
        with torch.inference_mode():
            x = torch.randn(batch_size, 240, width).to(device, dtype)
            cache = torch.zeros(2, batch_size, 8, 256, width // 8, device=device, dtype=dtype)
            past = cache[..., :0, :]
            for _ in range(16):
                query, *fresh = qkv(x).unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4)
                if growing:
                    past = torch.cat([past, torch.stack(fresh)], 3)
                else:
                    end = past.shape[3] + x.shape[1]
                    cache[..., past.shape[3] : end, :] = torch.stack(fresh)
                    past = cache[..., :end, :]
                mixed = F.scaled_dot_product_attention(query, past[0], past[1], is_causal=query.shape[2] > 1)
                x = out(mixed.transpose(1, 2).flatten(2))[:, -1:]
        yield x.float().mean()


def eight_bits(
    device: torch.device, *, rows: bool = False, width: int = 512, tokens: int = 1024
) -> Iterator[torch.Tensor]:
    """A product of 8-bit floats, which cards since sm_89 have; ``rows``: with a scale a row."""
    x, weight = (torch.randn(n, width).to(device, torch.bfloat16) for n in (tokens, 2 * width))
    while True:
        scales = [
            tensor.abs().amax(1, keepdim=True).float() if rows else tensor.abs().amax().float()
            for tensor in (x, weight)
        ]
        small = [(tensor / scale).to(torch.float8_e4m3fn) for tensor, scale in zip((x, weight), scales, strict=True)]
        scale_b = scales[1].t() if rows else scales[1]
        bias = torch.zeros(2 * width, device=device, dtype=torch.bfloat16)
        out = torch.ops.aten._scaled_mm(
            small[0], small[1].t(), scale_a=scales[0], scale_b=scale_b, bias=bias, out_dtype=torch.bfloat16
        )
        yield out.float().mean()
