"""Convolutional networks as torchvision and timm have them, written small: the same layers, none of their options.

Each maps ``(N, 3, H, W)`` to ``(N, 1000)``. Only shapes matter here: weights are PyTorch's own at the start.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn


def conv(into: int, out: int, kernel, stride=1, groups: int = 1, act: Callable[[], nn.Module] | None = None, **more):
    """A convolution, batch norm, and an activation (ReLU in place, as torchvision has it)."""
    padding = more.pop("padding", kernel // 2 if isinstance(kernel, int) else tuple(k // 2 for k in kernel))
    layers = [nn.Conv2d(into, out, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(out, **more)]
    return nn.Sequential(*layers, *([act()] if act else []))


def relu() -> nn.Module:
    return nn.ReLU(inplace=True)


class Sum(nn.Module):
    """Branches that are added, then perhaps an activation."""

    def __init__(self, *branches: nn.Module, act: nn.Module | None = None):
        super().__init__()
        self.branches, self.act = nn.ModuleList(branches), act or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *others = self.branches
        out = first(x)
        for other in others:
            out += other(x)
        return self.act(out)


class Join(nn.Module):
    """Branches whose channels are put together."""

    def __init__(self, *branches: nn.Module):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def head(width: int, dropout: float = 0.0) -> list[nn.Module]:
    drop = [nn.Dropout(dropout)] if dropout else []
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), *drop, nn.Linear(width, 1000)]


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    into = 3
    for out in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        layers += [nn.Conv2d(into, out, 3, padding=1), relu()] if out else [nn.MaxPool2d(2, 2)]
        into = out or into
    tail = [nn.Linear(512 * 49, 4096), relu(), nn.Dropout(), nn.Linear(4096, 4096), relu(), nn.Dropout()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), *tail, nn.Linear(4096, 1000))


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 64, 7, 2, act=relu), nn.MaxPool2d(3, 2, 1)]
    into = 64
    for width, depth, step in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(depth):
            stride = 1 if index else step
            main = [conv(into, width, 1, act=relu), conv(width, width, 3, stride, act=relu), conv(width, 4 * width, 1)]
            side = nn.Identity() if index else conv(into, 4 * width, 1, stride)
            layers.append(Sum(nn.Sequential(*main), side, act=relu()))
            into = 4 * width
    return nn.Sequential(*layers, *head(2048))


def mobilenet_v2() -> nn.Module:
    def relu6() -> nn.Module:
        return nn.ReLU6(inplace=True)

    layers: list[nn.Module] = [conv(3, 32, 3, 2, act=relu6)]
    into = 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, out, depth, step in rows:
        for index in range(depth):
            stride, wide = 1 if index else step, into * expand
            widen = [conv(into, wide, 1, act=relu6)] if expand > 1 else []
            block = nn.Sequential(*widen, conv(wide, wide, 3, stride, wide, act=relu6), conv(wide, out, 1))
            layers.append(Kept(block) if stride == 1 and into == out else block)
            into = out
    return nn.Sequential(*layers, conv(320, 1280, 1, act=relu6), *head(1280, 0.2))


class Kept(nn.Module):
    """``x + block(x)``, not in place."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x)


class Squeeze(nn.Module):
    """Squeeze and excitation with SiLU."""

    def __init__(self, width: int, squeezed: int):
        super().__init__()
        parts = [nn.Conv2d(width, squeezed, 1), nn.SiLU(inplace=True), nn.Conv2d(squeezed, width, 1), nn.Sigmoid()]
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), *parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(x) * x


class DropPath(nn.Module):
    """``torchvision.ops.StochasticDepth`` by row."""

    def __init__(self, probability: float):
        super().__init__()
        self.probability = probability

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.empty((x.shape[0], 1, 1, 1), dtype=x.dtype, device=x.device).bernoulli_(1 - self.probability)
        if self.probability < 1.0:
            noise.div_(1 - self.probability)
        return x * noise


def efficientnet_b0() -> nn.Module:
    def silu() -> nn.Module:
        return nn.SiLU(inplace=True)

    layers: list[nn.Module] = [conv(3, 32, 3, 2, act=silu)]
    into, done = 32, 0
    rows = (
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
    )
    for expand, kernel, step, out, depth in (*rows, (6, 3, 1, 320, 1)):
        for index in range(depth):
            stride, wide = 1 if index else step, into * expand
            widen = [conv(into, wide, 1, act=silu)] if expand > 1 else []
            inner = [conv(wide, wide, kernel, stride, wide, act=silu), Squeeze(wide, into // 4), conv(wide, out, 1)]
            if stride == 1 and into == out:
                layers.append(Added(nn.Sequential(*widen, *inner), DropPath(0.2 * done / 16)))
            else:
                layers.append(nn.Sequential(*widen, *inner))
            into, done = out, done + 1
    return nn.Sequential(*layers, conv(320, 1280, 1, act=silu), *head(1280, 0.2))


class Added(nn.Module):
    """A block, dropped at random, and its input added to it in place."""

    def __init__(self, block: nn.Module, drop: nn.Module):
        super().__init__()
        self.block, self.drop = block, drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.drop(self.block(x))
        out += x
        return out


def inception_v3() -> nn.Module:
    def one(into: int, out: int, kernel=1, stride=1, padding=0) -> nn.Module:
        return conv(into, out, kernel, stride, padding=padding, eps=0.001, act=relu)

    def pooled(into: int, out: int) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1), one(into, out))

    def a(into: int, pool: int) -> nn.Module:
        third = nn.Sequential(one(into, 64), one(64, 96, 3, padding=1), one(96, 96, 3, padding=1))
        return Join(one(into, 64), nn.Sequential(one(into, 48), one(48, 64, 5, padding=2)), third, pooled(into, pool))

    def c(c7: int) -> nn.Module:
        wide, tall = {"kernel": (1, 7), "padding": (0, 3)}, {"kernel": (7, 1), "padding": (3, 0)}
        second = nn.Sequential(one(768, c7), one(c7, c7, **wide), one(c7, 192, **tall))
        third = [one(768, c7), one(c7, c7, **tall), one(c7, c7, **wide), one(c7, c7, **tall), one(c7, 192, **wide)]
        return Join(one(768, 192), second, nn.Sequential(*third), pooled(768, 192))

    def split(into: int) -> nn.Module:
        return Join(one(into, 384, (1, 3), padding=(0, 1)), one(into, 384, (3, 1), padding=(1, 0)))

    def e(into: int) -> nn.Module:
        second = nn.Sequential(one(into, 384), split(384))
        third = nn.Sequential(one(into, 448), one(448, 384, 3, padding=1), split(384))
        return Join(one(into, 320), second, third, pooled(into, 192))

    b = Join(
        one(288, 384, 3, 2),
        nn.Sequential(one(288, 64), one(64, 96, 3, padding=1), one(96, 96, 3, 2)),
        nn.MaxPool2d(3, 2),
    )
    d = Join(
        nn.Sequential(one(768, 192), one(192, 320, 3, 2)),
        nn.Sequential(
            one(768, 192),
            one(192, 192, (1, 7), padding=(0, 3)),
            one(192, 192, (7, 1), padding=(3, 0)),
            one(192, 192, 3, 2),
        ),
        nn.MaxPool2d(3, 2),
    )
    stem = [
        one(3, 32, 3, 2),
        one(32, 32, 3),
        one(32, 64, 3, padding=1),
        nn.MaxPool2d(3, 2),
        one(64, 80),
        one(80, 192, 3),
    ]
    middle = [a(192, 32), a(256, 64), a(288, 64), b, c(128), c(160), c(160), c(192), d, e(1280), e(2048)]
    return nn.Sequential(
        *stem, nn.MaxPool2d(3, 2), *middle, nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, 1000)
    )


def xception() -> nn.Module:
    """timm's ``legacy_xception``."""

    def separable(into: int, out: int) -> list[nn.Module]:
        depth = nn.Conv2d(into, into, 3, 1, 1, groups=into, bias=False)
        return [depth, nn.Conv2d(into, out, 1, bias=False), nn.BatchNorm2d(out)]

    def block(into: int, out: int, count: int, stride: int, first: bool = True, grow_first: bool = True) -> nn.Module:
        widths = [into, *([out] * count if grow_first else [into] * (count - 1) + [out])]
        layers: list[nn.Module] = []
        for index, (one, other) in enumerate(pairwise(widths)):
            layers += [nn.ReLU(inplace=bool(index)), *separable(one, other)]
        layers = layers if first else layers[1:]
        if stride > 1:
            layers.append(nn.MaxPool2d(3, stride, 1))
        side = nn.Identity() if into == out and stride == 1 else conv(into, out, 1, stride)
        return Sum(nn.Sequential(*layers), side)

    stem = [conv(3, 32, 3, 2, padding=0, act=relu), conv(32, 64, 3, padding=0, act=relu)]
    entry = [block(64, 128, 2, 2, first=False), block(128, 256, 2, 2), block(256, 728, 2, 2)]
    middle = [block(728, 728, 3, 1) for _ in range(8)]
    last = [*separable(1024, 1536), relu(), *separable(1536, 2048), relu()]
    return nn.Sequential(*stem, *entry, *middle, block(728, 1024, 2, 2, grow_first=False), *last, *head(2048))


class Dense(nn.Module):
    """A layer of DenseNet: what it is given in parts is put together first."""

    def __init__(self, into: int, growth: int):
        super().__init__()
        inner = [nn.BatchNorm2d(into), relu(), nn.Conv2d(into, 4 * growth, 1, bias=False), nn.BatchNorm2d(4 * growth)]
        self.layers = nn.Sequential(*inner, relu(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return self.layers(torch.cat(parts, 1))


class DenseBlock(nn.Module):
    """Layers that each see all before them."""

    def __init__(self, into: int, growth: int, depth: int):
        super().__init__()
        self.layers = nn.ModuleList([Dense(into + index * growth, growth) for index in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [x]
        for layer in self.layers:
            parts.append(layer(parts))
        return torch.cat(parts, 1)


def densenet121() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 64, 7, 2, act=relu), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for depth in (6, 12, 24, 16):
        layers.append(DenseBlock(width, 32, depth))
        width += 32 * depth
        layers += [nn.BatchNorm2d(width), relu()]
        if depth != 16:
            layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
            width //= 2
    return nn.Sequential(*layers, *head(1024))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vgg16": vgg16,
    "resnet50": resnet50,
    "xception": xception,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet_b0": efficientnet_b0,
    "inception_v3": inception_v3,
    "densenet121": densenet121,
}
