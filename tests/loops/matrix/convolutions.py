"""Convolutions of every kind that CUDA treats in its own way, and networks of them."""

from collections.abc import Iterator

import torch
from torch import nn

from tests.loops.case import Case
from tests.loops.matrix.training import cudnn_flag, dtype_of, train

LAYERS = {
    (1, False): nn.Conv1d,
    (2, False): nn.Conv2d,
    (3, False): nn.Conv3d,
    (1, True): nn.ConvTranspose1d,
    (2, True): nn.ConvTranspose2d,
    (3, True): nn.ConvTranspose3d,
}
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
BLOCKS = ("plain", "depthwise", "grouped", "bottleneck", "dilated", "odd")


def cases() -> Iterator[Case]:
    """Single layers by dimension, then networks."""
    for dims in (1, 2, 3):
        for precision in ("fp32", "bf16"):
            yield Case(convolutions, {"dims": dims, "precision": precision})
            yield Case(convolutions, {"dims": dims, "precision": precision, "transposed": True})
            yield Case(convolutions, {"dims": dims, "precision": precision, "groups": 4})
    for dims in (2, 3):
        for precision in ("fp32", "bf16"):
            yield Case(convolutions, {"dims": dims, "precision": precision, "channels_last": True})
    for settings in ({"stride": 2}, {"dilation": 2}, {"kernel": 1}, {"kernel": 5}, {"image": 33}, {"width": 61}):
        for precision in ("fp32", "fp16"):
            yield Case(convolutions, {"dims": 2, "precision": precision, **settings})
    yield Case(convolutions, {"dims": 2, "precision": "fp32", "tf32": False})
    yield Case(convolutions, {"dims": 2, "precision": "pure bf16", "channels_last": True})
    yield Case(convolutions, {"dims": 2, "precision": "fp32", "mixed_formats": True})
    for block in BLOCKS:
        for precision, channels_last in (("fp32", False), ("bf16", False), ("fp16", True)):
            yield Case(network, {"block": block, "precision": precision, "channels_last": channels_last})
    for batch_size in (1, 7, 128):
        yield Case(network, {"block": "plain", "precision": "fp32", "batch_size": batch_size})
        yield Case(network, {"block": "bottleneck", "precision": "bf16", "batch_size": batch_size})
    # Shapes that no other case has: a plan that was found once is not searched again in the same process.
    for block, precision in (("plain", "fp32"), ("bottleneck", "bf16"), ("dilated", "fp16")):
        yield Case(network, {"block": block, "precision": precision, "batch_size": 6, "benchmark": True})
    for precision in ("fp32", "bf16"):
        yield Case(unet, {"precision": precision})
        yield Case(unet, {"precision": precision, "channels_last": True})


def convolutions(
    device: torch.device,
    *,
    dims: int = 2,
    transposed: bool = False,
    groups: int = 1,
    kernel: int = 3,
    stride: int = 1,
    dilation: int = 1,
    width: int = 64,
    image: int = 32,
    batch_size: int = 16,
    precision: str = "fp32",
    channels_last: bool = False,
    mixed_formats: bool = False,
    tf32: bool = True,
    optimizer: str = "SGD",
) -> Iterator[torch.Tensor]:
    """Three convolutions in a row, with nothing between them, on noise of ``image`` points a dimension."""
    layer = LAYERS[dims, transposed]
    padding = dilation * (kernel // 2)
    inner = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    edge = {1: 32 * image, 2: image, 3: image // 2}[dims]
    model = nn.Sequential(
        nn.Conv1d(3, width, 1) if dims == 1 else LAYERS[dims, False](3, width, kernel, padding=kernel // 2),
        layer(width, 2 * width, kernel, **inner),
        layer(2 * width, width, kernel, **inner),
    )
    if channels_last:
        model = model.to(memory_format=FORMATS[dims])  # type: ignore[call-overload]
    if mixed_formats:
        model[1] = model[1].to(memory_format=FORMATS[dims])  # type: ignore[call-overload]

    def forward() -> torch.Tensor:
        x = torch.randn(batch_size, 3, *[edge] * dims).to(device, dtype_of(model))
        return model(x).square().mean()

    with cudnn_flag("allow_tf32", tf32):
        yield from train(model, forward, device, precision, optimizer)


def network(
    device: torch.device,
    *,
    block: str = "plain",
    width: int = 64,
    depth: int = 4,
    image: int = 56,
    batch_size: int = 16,
    precision: str = "fp32",
    channels_last: bool = False,
    benchmark: bool = False,
    optimizer: str = "SGD momentum",
) -> Iterator[torch.Tensor]:
    """A stem, ``depth`` blocks of convolution, batch norm and ReLU at halving size, a classifier; on noise."""
    stem = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    layers: list[nn.Module] = [stem, nn.BatchNorm2d(width), nn.ReLU()]
    for index in range(depth):
        stride = 2 if index % 2 else 1
        layers += _block(block, width, width * stride, stride)
        width *= stride
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100))
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward() -> torch.Tensor:
        x = torch.randn(batch_size, 3, 2 * image, 2 * image).to(device, dtype_of(model))
        targets = torch.zeros(batch_size, dtype=torch.int64).to(device)
        return nn.functional.cross_entropy(model(x), targets)

    with cudnn_flag("benchmark", benchmark):
        yield from train(model, forward, device, precision, optimizer)


def _block(kind: str, width: int, out: int, stride: int) -> list[nn.Module]:
    def normed(into: int, out: int, kernel: int, stride: int = 1, groups: int = 1, gap: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(into, out, kernel, stride, gap * (kernel // 2), gap, groups, bias=False)
        return [layer, nn.BatchNorm2d(out), nn.ReLU()]

    if kind == "depthwise":
        return [*normed(width, width, 3, stride, groups=width), *normed(width, out, 1)]
    if kind == "grouped":
        return [*normed(width, width, 1), *normed(width, out, 3, stride, groups=8), *normed(out, out, 1)]
    if kind == "bottleneck":
        return [*normed(width, width // 4, 1), *normed(width // 4, width // 4, 3, stride), *normed(width // 4, out, 1)]
    if kind == "dilated":
        return normed(width, out, 3, stride, gap=2)
    if kind == "odd":
        return [*normed(width, 37, 5), *normed(37, out, 3, stride)]
    return [*normed(width, out, 3, stride), *normed(out, out, 3)]


class UNet(nn.Module):
    """Two scales down and up again, with skips: ``(N, 3, H, W)`` to ``(N, 1, H, W)``."""

    def __init__(self, width: int):
        super().__init__()
        self.down = nn.ModuleList([_pair(3, width), _pair(width, 2 * width)])
        self.bottom = _pair(2 * width, 4 * width)
        self.rise = nn.ModuleList([nn.ConvTranspose2d(k * width, k * width // 2, 2, 2) for k in (4, 2)])
        self.up = nn.ModuleList([_pair(4 * width, 2 * width), _pair(2 * width, width)])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for part in self.down:
            x = part(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for rise, part in zip(self.rise, self.up, strict=True):
            x = part(torch.cat([skips.pop(), rise(x)], 1))
        return self.head(x)


def _pair(into: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(into, out, 3, padding=1), nn.ReLU(), nn.Conv2d(out, out, 3, padding=1), nn.ReLU())


def unet(
    device: torch.device,
    *,
    width: int = 32,
    image: int = 128,
    batch_size: int = 8,
    precision: str = "fp32",
    channels_last: bool = False,
    optimizer: str = "AdamW",
) -> Iterator[torch.Tensor]:
    """A small U-Net on noise."""
    model = UNet(width)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward() -> torch.Tensor:
        x = torch.randn(batch_size, 3, image, image).to(device, dtype_of(model))
        return model(x).square().mean()

    yield from train(model, forward, device, precision, optimizer)
