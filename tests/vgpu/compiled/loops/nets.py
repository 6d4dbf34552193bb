"""Networks as people compile them, each in a loop that gives its loss."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.vgpu.compiled.loops.common import HALF, TOKENS, images, text, trained

Loop = Callable[[Any], Iterator[torch.Tensor]]


class Residual(nn.Module):
    """A block of a diffusion model's U-Net: GroupNorm, SiLU, and the time added in between."""

    def __init__(self, before: int, after: int, time: int):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1))
        self.time = nn.Linear(time, after)
        self.second = nn.Sequential(
            nn.GroupNorm(8, after), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(after, after, 3, padding=1)
        )
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.first(x) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(h)


class UNet(nn.Module):
    """Two levels with skip connections, which predict the noise that was added at a time."""

    def __init__(self, width: int = 32, time: int = 128, steps: int = 1000):
        super().__init__()
        self.width = width
        self.register_buffer("kept", torch.linspace(1, 0.01, steps))
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([Residual(width, width, time), Residual(width, 2 * width, time)])
        self.shrink = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.middle = Residual(2 * width, 2 * width, time)
        self.up = nn.ModuleList([Residual(4 * width, width, time), Residual(2 * width, width, time)])
        self.leave = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, images: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        when = torch.randint(len(self.kept), (len(images),), device=images.device)
        noise, kept = torch.randn_like(images), self.kept[when][:, None, None, None]
        speeds = torch.exp(-torch.arange(self.width // 2, device=images.device) / self.width)
        angles = when[:, None] * speeds
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        first = self.down[0](self.enter(kept.sqrt() * images + (1 - kept).sqrt() * noise), time)
        second = self.down[1](self.shrink(first), time)
        x = self.up[0](torch.cat([self.middle(second, time), second], 1), time)
        x = self.up[1](torch.cat([F.interpolate(x, scale_factor=2), first], 1), time)
        return F.mse_loss(self.leave(x), noise)


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, and a narrow MLP on the channels, scaled."""

    def __init__(self, width: int):
        super().__init__()
        self.across = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.across(x).permute(0, 2, 3, 1)
        return x + (self.scale * self.mlp(self.norm(h))).permute(0, 3, 1, 2)


class Classifier(nn.Module):
    """Some layers for images, their mean over places, and the loss of ten classes."""

    def __init__(self, *layers: nn.Module, width: int):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.layers(x).mean((2, 3))), classes)


def convnext() -> nn.Module:
    return Classifier(nn.Conv2d(3, 64, 4, stride=4), ConvNeXtBlock(64), ConvNeXtBlock(64), width=64)


class Inverted(nn.Module):
    """MobileNet's block: wide, depthwise, narrow, each with BatchNorm."""

    def __init__(self, width: int, wide: int):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True)),
            *(nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide)),
            *(nn.ReLU6(inplace=True), nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def mobilenet() -> nn.Module:
    blocks = (nn.Conv2d(3, 32, 3, stride=2, padding=1), Inverted(32, 128), Inverted(32, 128))
    return Classifier(*blocks, width=32).to(memory_format=torch.channels_last)


class Recurrent(nn.Module):
    """A language model of an LSTM, which Dynamo does not trace."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 128)
        self.lstm = nn.LSTM(128, 192, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(192, TOKENS)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(F.dropout(self.embedding(tokens), 0.1, self.training))
        return F.cross_entropy(self.head(F.gelu(x)).flatten(0, 1), targets.flatten())


def recurrent(device: Any) -> Iterator[torch.Tensor]:
    """The same model without cuDNN, whose recurrent networks the stand-in has not."""
    with torch.backends.cudnn.flags(enabled=False):
        yield from trained(device, make=Recurrent, batches=[text(8, 64)])


class Experts(nn.Module):
    """A layer of experts, of which each token goes to two, as long as there is room in them."""

    def __init__(self, width: int = 128, count: int = 8, room: int = 160):
        super().__init__()
        self.count, self.room = count, room
        self.embedding = nn.Embedding(TOKENS, width)
        self.router = nn.Linear(width, count, bias=False)
        self.enter = nn.Parameter(torch.randn(count, width, 4 * width) * 0.02)
        self.leave = nn.Parameter(torch.randn(count, 4 * width, width) * 0.02)
        self.head = nn.Linear(width, TOKENS, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).flatten(0, 1)
        chances = self.router(x).float().softmax(-1)
        weights, chosen = chances.topk(2, dim=-1)
        hot = F.one_hot(chosen, self.count).flatten(0, 1)
        place = ((hot.cumsum(0) - 1) * hot).sum(-1)
        slot = torch.where(place < self.room, chosen.flatten() * self.room + place, self.count * self.room)
        inputs = x.new_zeros(self.count * self.room + 1, x.shape[-1])
        inputs = inputs.index_copy(0, slot, x.repeat_interleave(2, 0))[:-1].view(self.count, self.room, -1)
        out = torch.bmm(F.silu(torch.bmm(inputs, self.enter.to(x.dtype))), self.leave.to(x.dtype)).flatten(0, 1)
        back = F.pad(out, (0, 0, 0, 1))[slot].view(len(x), 2, -1)
        x = x + (back * weights[:, :, None].to(x.dtype)).sum(1)
        balance = self.count * (hot.float().mean(0) * chances.mean(0)).sum()
        return F.cross_entropy(self.head(x), targets.flatten()) + 0.01 * balance


class MaskedModel(nn.Module):
    """A BERT: padding is masked, a part of the tokens counts in the loss, and the head is tied."""

    def __init__(self, width: int = 128, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.embedding, self.norm = nn.Embedding(TOKENS, width, padding_idx=0), nn.LayerNorm(width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, TOKENS)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x, seen = F.dropout(self.norm(self.embedding(tokens)), 0.1), (tokens != 1)[:, None, None, :]
        for qkv, out, norm in zip(self.qkv, self.out, self.norms, strict=True):
            q, k, v = qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=0.1)
            x = norm(x + F.dropout(out(mixed.transpose(1, 2).flatten(2)), 0.1))
        counted = torch.where(torch.rand(targets.shape, device=x.device) < 0.15, targets, -100)
        return F.cross_entropy(self.head(self.transform(x)).flatten(0, 1).float(), counted.flatten())


class Recommender(nn.Module):
    """Bags of features, their products with one another, and an MLP."""

    def __init__(self, tables: int = 4):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(5000, 32, mode="sum") for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 10, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        x = self.dense(numbers)
        found = torch.stack([x, *(bag(words) for bag in self.bags)], 1)
        products = found @ found.mT
        upper = torch.triu_indices(5, 5, offset=1, device=x.device)
        logits = self.top(torch.cat([x, products[:, upper[0], upper[1]]], 1))
        return F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits))


class Messages(nn.Module):
    """A graph network: each node adds what comes along its edges."""

    def __init__(self, width: int = 128, depth: int = 3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        begin, end = edges.unbind(1)
        for layer in self.layers:
            along = F.relu(layer(torch.cat([nodes[begin], nodes[end]], 1)))
            nodes = nodes + torch.zeros_like(nodes).index_add_(0, end, along)
        return self.head(nodes).square().mean()


class Spectral(nn.Module):
    """FNet, which mixes tokens by a Fourier transform, behind rotations as complex numbers, as in Meta's Llama."""

    def __init__(self, width: int = 128, depth: int = 2):
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, width), nn.Linear(width, TOKENS)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        angles = torch.outer(
            torch.arange(tokens.shape[1], device=x.device), torch.ones(x.shape[-1] // 2, device=x.device)
        )
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
        x = torch.view_as_real(turned).flatten(-2)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = norm(x + torch.fft.fft2(x).real)
            x = x + layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Codebook(nn.Module):
    """Vector quantization, whose code book follows the inputs in place, without gradients."""

    def __init__(self, width: int = 64, codes: int = 512):
        super().__init__()
        self.encode, self.decode = nn.Linear(256, 4 * width), nn.Linear(4 * width, 256)
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("used", torch.ones(codes))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = self.encode(x).view(-1, self.codes.shape[1])
        nearest = torch.cdist(found, self.codes).argmin(1)
        code = self.codes[nearest]
        if self.training:
            with torch.no_grad():
                hot = F.one_hot(nearest, len(self.codes)).to(found.dtype)
                self.used.mul_(0.99).add_(hot.sum(0), alpha=0.01)
                self.codes.lerp_(hot.T @ found / self.used[:, None], 0.01)
        straight = found + (code - found).detach()
        return F.mse_loss(self.decode(straight.view(len(x), -1)), y) + 0.25 * F.mse_loss(found, code.detach())


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes, and the edges between them."""
    return torch.zeros(2000, 128), torch.zeros(8000, 2, dtype=torch.long)


def channels_last(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch[0].to(memory_format=torch.channels_last), batch[1]


FEATURES = torch.zeros(2048, 256), torch.zeros(2048, 8, dtype=torch.long)
ROWS = torch.zeros(1024, 256), torch.zeros(1024, 256)

NETS: dict[str, Loop] = {
    "diffusion": partial(trained, make=UNet, batches=[images(8, 32)], autocast=HALF),
    "convnext": partial(trained, make=convnext, batches=[images(16, 64)], autocast=HALF),
    "mobilenet channels last": partial(trained, make=mobilenet, batches=[channels_last(images(16, 64))]),
    "lstm": recurrent,
    "experts": partial(trained, make=Experts, batches=[text(4, 128)], autocast=HALF),
    "masked language model": partial(trained, make=MaskedModel, batches=[text(4, 128)], autocast=HALF),
    "recommender": partial(trained, make=Recommender, batches=[FEATURES]),
    "graph network": partial(trained, make=Messages, batches=[graph()]),
    "fourier": partial(trained, make=Spectral, batches=[text(4, 128)]),
    "code book": partial(trained, make=Codebook, batches=[ROWS]),
}
