"""Transformers: PyTorch's own, grouped queries, a small Llama, mixtures of experts."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from memlab.vgpu.versions import TORCH
from tests.loops.ordinary.catalogue import ATTENTION, CHOSEN, DROPOUT, ordinary

TOKENS = 100


def tokens(batch, length, device):
    return torch.randint(1, TOKENS, (batch, length)).to(device)


@ordinary(differs=ATTENTION)
def transformer(device):
    embedding = nn.Embedding(TOKENS, 32).to(device)
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True).to(device)
    head = nn.Linear(32, TOKENS).to(device)
    parameters = [*embedding.parameters(), *model.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for _ in range(3):
        source, target = tokens(4, 12, device), tokens(4, 10, device)
        source[:, -2:] = 0
        causal = nn.Transformer.generate_square_subsequent_mask(9, device=device)
        padding = source == 0
        out = model(
            embedding(source),
            embedding(target[:, :-1]),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        loss = F.cross_entropy(head(out).reshape(-1, TOKENS), target[:, 1:].reshape(-1), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


class PositionalEncoding(nn.Module):
    def __init__(self, width, length=500):
        super().__init__()
        position = torch.arange(length).unsqueeze(1)
        div = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(length, width)
        pe[:, 0::2] = torch.sin(position * div)
        pe[:, 1::2] = torch.cos(position * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


# Evaluated, it takes a kernel of its own, of which PyTorch 2.11 does not know what it gives.
@ordinary(refused="" if TORCH >= (2, 13) else "cannot be predicted", differs=ATTENTION)
def transformer_encoder(device):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    model = nn.Sequential(
        nn.Embedding(TOKENS, 32), PositionalEncoding(32), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    )
    head = nn.Linear(32, 2)
    model.to(device), head.to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
    for _ in range(3):
        loss = F.cross_entropy(head(model(tokens(4, 16, device)).mean(1)), torch.randint(0, 2, (4,)).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(tokens(4, 16, device))
        model.train()
        yield loss


@ordinary(differs=ATTENTION)
def multihead_attention_with_weights(device):
    attention = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True).to(device)
    for _ in range(3):
        x = torch.randn(2, 16, 32, device=device)
        mask = torch.zeros(2, 16, dtype=torch.bool, device=device)
        mask[:, 12:] = True
        out, weights = attention(x, x, x, key_padding_mask=mask, need_weights=True)
        loss = out.square().mean() + weights.square().mean()
        loss.backward()
        attention.zero_grad()
        yield loss


def rotate(x, cos, sin):
    one, two = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-two, one), dim=-1) * sin


class GroupedAttention(nn.Module):
    """8 heads of queries, 2 of keys and values."""

    def __init__(self, width=64, native=False):
        super().__init__()
        self.native, self.head = native, width // 8
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, width // 2, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        angles = torch.outer(torch.arange(64), 10000 ** (-torch.arange(0, self.head, 2) / self.head)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q(x).view(B, T, 8, self.head).transpose(1, 2)
        k, v = self.kv(x).view(B, T, 2, 2, self.head).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, self.cos[:T], self.sin[:T]), rotate(k, self.cos[:T], self.sin[:T])
        if not self.native:
            k, v = k.repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.native)
        return self.o(out.transpose(1, 2).reshape(B, T, C))


class LlamaBlock(nn.Module):
    def __init__(self, width=64, native=False):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = GroupedAttention(width, native)
        self.gate, self.up = nn.Linear(width, 128, bias=False), nn.Linear(width, 128, bias=False)
        self.down = nn.Linear(128, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def llama(device, native, dtype=torch.float32):
    model = nn.Sequential(
        nn.Embedding(TOKENS, 64), LlamaBlock(native=native), LlamaBlock(native=native), nn.RMSNorm(64)
    )
    head = nn.Linear(64, TOKENS, bias=False)
    head.weight = model[0].weight
    model.to(device=device, dtype=dtype), head.to(device=device, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    for _ in range(3):
        batch = tokens(4, 33, device)
        logits = head(model(batch[:, :-1])).float()
        loss = F.cross_entropy(logits.view(-1, TOKENS), batch[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


@ordinary(differs=ATTENTION)
def llama_with_repeated_heads(device):
    yield from llama(device, native=False)


@ordinary(differs=ATTENTION)
def llama_with_grouped_queries(device):
    yield from llama(device, native=True)


@ordinary(differs=ATTENTION)
def llama_in_bfloat16(device):
    yield from llama(device, native=True, dtype=torch.bfloat16)


@ordinary()
def attention_by_hand(device):
    qkv, out = nn.Linear(32, 96).to(device), nn.Linear(32, 32).to(device)
    mask = torch.tril(torch.ones(48, 48, device=device)).view(1, 1, 48, 48)
    optimizer = torch.optim.SGD([*qkv.parameters(), *out.parameters()], lr=0.1)
    for _ in range(3):
        x = torch.randn(4, 48, 32, device=device)
        q, k, v = (part.view(4, 48, 4, 8).transpose(1, 2) for part in qkv(x).split(32, dim=2))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(8))
        weights = F.softmax(weights.masked_fill(mask == 0, float("-inf")), dim=-1)
        y = out((weights @ v).transpose(1, 2).contiguous().view(4, 48, 32))
        loss = F.mse_loss(y, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(32, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(4))


class MixtralExperts(Experts):
    """As in transformers' Mixtral: every expert finds its tokens with ``torch.where`` and adds with ``index_add_``."""

    def forward(self, x):
        weights, chosen = torch.topk(F.softmax(self.router(x), dim=1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, num_classes=4).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            slot, token = torch.where(mask[number])
            out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return out


class DenseExperts(Experts):
    """Every expert sees every token, and the weights of those not chosen are 0."""

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        gates = torch.zeros(len(x), 4, device=x.device).scatter_(1, chosen, weights)
        return sum(expert(x) * gates[:, i : i + 1] for i, expert in enumerate(self.experts))


def mixture(device, experts):
    model = experts().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(256, 32, device=device)
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(differs=CHOSEN)
def experts_by_where(device):
    yield from mixture(device, MixtralExperts)


@ordinary()
def experts_by_gates(device):
    yield from mixture(device, DenseExperts)


@ordinary(differs=DROPOUT)
def vision_transformer_with_dropout(device):
    patches = nn.Conv2d(3, 32, 8, stride=8).to(device)
    cls = nn.Parameter(torch.zeros(1, 1, 32, device=device))
    position = nn.Parameter(torch.empty(1, 17, 32, device=device))
    nn.init.trunc_normal_(position, std=0.02)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, activation="gelu", batch_first=True).to(device)
    head = nn.Linear(32, 10).to(device)
    parameters = [cls, position, *patches.parameters(), *layer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    for _ in range(3):
        x = torch.randn(4, 3, 32, 32, device=device)
        x = torch.cat([cls.expand(4, -1, -1), patches(x).flatten(2).transpose(1, 2)], dim=1) + position
        loss = F.cross_entropy(head(layer(x)[:, 0]), torch.randint(0, 10, (4,), device=device), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss
