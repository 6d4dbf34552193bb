"""The training steps whose published times are in times.json, written small: the same operators, no options."""

import math
from collections.abc import Iterator

import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.published.networks import NETWORKS

BERT = {"base": (12, 768, 12), "large": (24, 1024, 16)}


class Attention(nn.Module):
    """Self-attention with matrices of its own for query, key and value, step by step or fused."""

    def __init__(self, width: int, heads: int, *, causal: bool, bias: bool, fused: bool = False):
        super().__init__()
        self.heads, self.causal, self.fused = heads, causal, fused
        self.query, self.key, self.value = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        query, key, value = (
            project(x).view(batch, tokens, self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, dropout_p=0.1)
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
            mask = torch.zeros(tokens, tokens, device=x.device, dtype=torch.bool)
            scores = scores.masked_fill(mask, -torch.inf) if self.causal else scores + mask
            mixed = F.dropout(F.softmax(scores, dim=-1), 0.1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class SlowNorm(nn.Module):
    """A layer norm from its parts."""

    def __init__(self, width: int):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        variance = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * ((x - x.mean(dim=-1, keepdim=True)) / torch.sqrt(variance + 1e-5)) + self.shift


class SlowGelu(nn.Module):
    """GELU from its parts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3))))


class Layer(nn.Module):
    """A transformer's layer; its norms stand before attention and MLP, or behind them as in BERT."""

    def __init__(self, width: int, heads: int, *, before: bool, slow: bool = False, **attention):
        super().__init__()
        self.before = before
        self.attention = Attention(width, heads, **attention)
        norm, gelu = (SlowNorm, SlowGelu) if slow else (nn.LayerNorm, nn.GELU)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), gelu(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList(norm(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part, norm in zip((self.attention, self.mlp), self.norms, strict=True):
            x = x + F.dropout(part(norm(x)), 0.1) if self.before else norm(x + F.dropout(part(x), 0.1))
        return x


class Transformer(nn.Module):
    """Tokens in, their loss out. ``of`` tokens of a sequence are predicted; None: where an answer begins and ends."""

    def __init__(self, vocabulary: int, depth: int, width: int, tokens: int, of: int | None, tied: bool, **layer):
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(Layer(width, **layer) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary if of else 2, bias=False)
        if tied and of:
            self.head.weight = self.embed.weight
        self.of, self.checkpointed = of, False

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = F.dropout(self.embed(tokens) + self.positions.weight[: tokens.shape[1]], 0.1)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        logits = self.head(self.norm(x[:, : self.of]))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, : self.of].flatten() % logits.shape[-1])


def bert(size: str, tokens: int, masked: int | None, checkpointed: bool = False) -> nn.Module:
    """BERT with a head for masked words, or for the ends of an answer."""
    depth, width, heads = BERT[size]
    shape = {"heads": heads, "before": False, "causal": False, "bias": True}
    model = Transformer(30528, depth, width, tokens, masked, True, **shape)
    model.checkpointed = checkpointed
    return model


def gpt2(tokens: int = 1024, tied: bool = False, slow: bool = False, fused: bool = False) -> nn.Module:
    """GPT-2 of 12 layers."""
    shape = {"heads": 12, "before": True, "causal": True, "bias": False, "slow": slow, "fused": fused}
    return Transformer(50257, 12, 768, tokens, tokens, tied, **shape)


class Classifier(nn.Module):
    """A convolutional network with its loss."""

    def __init__(self, network: str):
        super().__init__()
        self.network = NETWORKS[network]()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.network(images), torch.zeros(len(images), dtype=torch.int64, device=images.device))


NETS = {"bert": bert, "gpt2": gpt2, "network": Classifier}


def train(
    device, *, net, batch_size, precision, optimizer="fused", micro_batches=1, channels_last=False, **shape
) -> Iterator[torch.Tensor]:
    """A step of ``batch_size`` samples, in micro-batches.

    Precision is fp32, tf32, amp (float16), bf16-amp, or the whole model in fp16 (with float32 copies of the weights for
    the optimizer) or bf16 (without).
    """
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    model = NETS[net](**shape).to(device)
    if precision in ("fp16", "bf16"):
        model = model.to(torch.float16 if precision == "fp16" else torch.bfloat16)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    if distributed.is_initialized():
        model = DistributedDataParallel(model)
    weights = list(model.parameters())
    masters = [weight.detach().float() for weight in weights] if precision == "fp16" else weights
    step = _optimizer(masters, optimizer)
    count = batch_size // micro_batches
    size = (count, 3, 224, 224) if net == "network" else (count, shape.get("tokens", 1024))
    kind = torch.bfloat16 if precision == "bf16-amp" else torch.float16
    while True:
        for _ in range(micro_batches):
            batch = torch.zeros(size, dtype=torch.float32 if net == "network" else torch.int64).to(device)
            with torch.autocast(device.type, kind, enabled=precision.endswith("amp")):
                loss = model(batch)
            loss.backward()
        if masters is not weights:
            for master, weight in zip(masters, weights, strict=True):
                master.grad = weight.grad.float()
        if step is not None:
            step.step()
        if masters is not weights:
            torch._foreach_copy_([weight.data for weight in weights], masters)
        for weight in weights:
            weight.grad = None
        yield loss


def _optimizer(weights: list[torch.Tensor], name: str) -> torch.optim.Optimizer | None:
    if name == "none":  # its time is shared by so many micro-batches that it does not show
        return None
    if name == "sgd":
        return torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    return torch.optim.AdamW(weights, fused=name == "fused", foreach=name == "foreach")
