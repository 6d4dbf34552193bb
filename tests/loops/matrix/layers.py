"""Layers and functions of torch.nn and torch, one at a time, between what makes their input and a loss.

Not here: what takes other ways for other numbers (prod and cumprod of zeros, unique, masks, most of linalg).
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.loops.case import Case
from tests.loops.matrix.training import train

Function = Callable[[Tensor], Tensor]


def cases() -> Iterator[Case]:
    """Everything that has an input of one form, by forms."""
    for name in ACTIVATIONS:
        yield Case(rows, {"function": name})
    for name in ("GELU", "SiLU", "Softmax", "LogSoftmax", "LayerNorm", "RMSNorm", "Dropout"):
        yield Case(rows, {"function": name, "precision": "bf16"})
    for name in ("GELU", "LayerNorm", "Softmax"):
        yield Case(rows, {"function": name, "precision": "pure bf16"})
    for width in (100, 1024, 5000):
        for name in ("LayerNorm", "RMSNorm", "Softmax"):
            yield Case(rows, {"function": name, "width": width})
    for name in IMAGES:
        yield Case(images, {"function": name})
    for name in FUNCTIONS:
        yield Case(functions, {"function": name})
    for name in LINALG:
        yield Case(matrices, {"function": name})


def rows(
    device: torch.device, *, function: str = "GELU", width: int = 512, batch_size: int = 2048, precision: str = "fp32"
) -> Iterator[Tensor]:
    """Two linear layers and, between them, what is asked for."""
    model = nn.Sequential(
        nn.Linear(64, width), ACTIVATIONS[function](width), nn.Linear(width // 2 if function in HALVING else width, 16)
    )
    dtype = torch.bfloat16 if precision == "pure bf16" else torch.float32
    yield from train(
        model, lambda: model(torch.randn(batch_size, 64).to(device, dtype)).square().mean(), device, precision, "SGD"
    )


def images(device: torch.device, *, function: str = "MaxPool2d", batch_size: int = 16) -> Iterator[Tensor]:
    """Images of 16 channels, made by a linear layer for each pixel; no convolution."""
    layer = IMAGES[function]()
    model = nn.ModuleList([nn.Linear(4, 16), layer])

    def forward() -> Tensor:
        pixels = model[0](torch.randn(batch_size, 32 * 32, 4).to(device))
        return layer(pixels.transpose(1, 2).reshape(batch_size, 16, 32, 32)).square().mean()

    yield from train(model, forward, device, "fp32", "SGD")


def functions(device: torch.device, *, function: str = "cumsum", batch_size: int = 1500) -> Iterator[Tensor]:
    """A function of a matrix ``[batch_size, 300]``."""
    model = nn.Linear(64, 300)

    def forward() -> Tensor:
        result = FUNCTIONS[function](model(torch.randn(batch_size, 64).to(device)))
        return (result.abs() if result.is_complex() else result).mean()

    yield from train(model, forward, device, "fp32", "SGD")


def matrices(device: torch.device, *, function: str = "kron", size: int = 120) -> Iterator[Tensor]:
    """A function of 20 square matrices."""
    model = nn.Linear(64, size)
    yield from train(
        model,
        lambda: LINALG[function](model(torch.randn(20, size, 64).to(device))).square().mean(),
        device,
        "fp32",
        "SGD",
    )


HALVING = ("GLU", "Maxout")


class Maxout(nn.Module):
    """The larger of each pair."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, 2)).max(2).values


NAMES = (
    "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU ReLU6 RReLU SELU "
    "SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Dropout AlphaDropout FeatureAlphaDropout"
)
ACTIVATIONS: dict[str, Callable[[int], nn.Module]] = {
    name: lambda width, name=name: getattr(nn, name)() for name in NAMES.split()
} | {
    "GELU tanh": lambda width: nn.GELU("tanh"),
    "ReLU in place": lambda width: nn.ReLU(inplace=True),
    "Dropout in place": lambda width: nn.Dropout(inplace=True),
    "GLU": lambda width: nn.GLU(),
    "Softmax": lambda width: nn.Softmax(1),
    "Softmin": lambda width: nn.Softmin(1),
    "LogSoftmax": lambda width: nn.LogSoftmax(1),
    "LayerNorm": nn.LayerNorm,
    "LayerNorm bare": lambda width: nn.LayerNorm(width, elementwise_affine=False),
    "RMSNorm": nn.RMSNorm,
    "GroupNorm": lambda width: nn.GroupNorm(8, width),
    "BatchNorm1d": nn.BatchNorm1d,
    "Maxout": lambda width: Maxout(),
    "weight_norm": lambda width: nn.utils.parametrizations.weight_norm(nn.Linear(width, width)),
    "spectral_norm": lambda width: nn.utils.parametrizations.spectral_norm(nn.Linear(width, width)),
}


class Bilinear(nn.Module):
    """``nn.Bilinear`` of an image's channels with themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Bilinear(16, 16, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        return self.layer(x, x)


class AsLayer(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Function):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _as_layer(function: Function) -> Callable[[], nn.Module]:
    return lambda: AsLayer(function)


def _sampled(x: Tensor) -> Tensor:
    turn = torch.eye(2, 3, device=x.device).expand(x.shape[0], 2, 3)
    return F.grid_sample(x, F.affine_grid(turn, list(x.shape), align_corners=False), align_corners=False)


IMAGES: dict[str, Callable[[], nn.Module]] = {
    "MaxPool2d": lambda: nn.MaxPool2d(2),
    "MaxPool2d overlapping": lambda: nn.MaxPool2d(3, 2, 1),
    "AvgPool2d": lambda: nn.AvgPool2d(2),
    "AdaptiveAvgPool2d": lambda: nn.AdaptiveAvgPool2d(1),
    "AdaptiveAvgPool2d 7": lambda: nn.AdaptiveAvgPool2d(7),
    "AdaptiveMaxPool2d": lambda: nn.AdaptiveMaxPool2d(4),
    "FractionalMaxPool2d": lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5),
    "LPPool2d": lambda: nn.LPPool2d(2, 2),
    "MaxUnpool2d": lambda: _as_layer(_unpooled)(),
    "nearest": lambda: nn.Upsample(scale_factor=2),
    "bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "bicubic": lambda: nn.Upsample(scale_factor=2, mode="bicubic"),
    "antialias": _as_layer(lambda x: F.interpolate(x, (20, 20), mode="bilinear", antialias=True)),
    "area": _as_layer(lambda x: F.interpolate(x, (16, 16), mode="area")),
    "GroupNorm": lambda: nn.GroupNorm(4, 16),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(16, affine=True),
    "InstanceNorm2d running": lambda: nn.InstanceNorm2d(16, track_running_stats=True),
    "BatchNorm2d": lambda: nn.BatchNorm2d(16),
    "LayerNorm": lambda: nn.LayerNorm([16, 32, 32]),
    "LocalResponseNorm": lambda: nn.LocalResponseNorm(3),
    "Dropout2d": lambda: nn.Dropout2d(),
    "PixelShuffle": lambda: nn.PixelShuffle(2),
    "PixelUnshuffle": lambda: nn.PixelUnshuffle(2),
    "ChannelShuffle": lambda: nn.ChannelShuffle(4),
    "Unfold": lambda: nn.Unfold(3, padding=1),
    "Fold": _as_layer(lambda x: F.fold(F.unfold(x, 4, stride=4), 32, 4, stride=4)),
    "ZeroPad2d": lambda: nn.ZeroPad2d(3),
    "ReflectionPad2d": lambda: nn.ReflectionPad2d(3),
    "ReplicationPad2d": lambda: nn.ReplicationPad2d(3),
    "CircularPad2d": lambda: nn.CircularPad2d(3),
    "Bilinear": Bilinear,
    "Softmax2d": lambda: nn.Softmax2d(),
    "grid_sample": _as_layer(_sampled),
    "channels_last pool": _as_layer(lambda x: F.max_pool2d(x.to(memory_format=torch.channels_last), 2)),
}


def _unpooled(x: Tensor) -> Tensor:
    return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), [2, 2])


def _mask(x: Tensor) -> Tensor:
    return torch.ones(x.shape, dtype=torch.bool, device=x.device).tril()


def _blurred(x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1])


FUNCTIONS: dict[str, Function] = {
    "cumsum": lambda x: x.cumsum(1),
    "cumsum of rows": lambda x: x.cumsum(0),
    "cummax": lambda x: x.cummax(1).values,
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "sort": lambda x: x.sort(1).values,
    "sort of rows": lambda x: x.sort(0).values,
    "sort of all": lambda x: x.flatten().sort().values,
    "argsort": lambda x: x[x[:, 0].argsort()],
    "stable argsort": lambda x: x.gather(1, x.argsort(dim=1, stable=True)),
    "topk": lambda x: x.topk(20, 1).values,
    "topk of all": lambda x: x.flatten().topk(1000).values,
    "kthvalue": lambda x: x.kthvalue(5, 1).values,
    "median": lambda x: x.median(1).values,
    "quantile": lambda x: x.quantile(0.5, 1),
    "max": lambda x: x.max(1).values,
    "max of all": lambda x: x.max(),
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.gather(1, x.argmax(1, keepdim=True)),
    "logsumexp": lambda x: x.logsumexp(1),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(),
    "norm": lambda x: x.norm(dim=1),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "masked_fill": lambda x: x.masked_fill(_mask(x), -1.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "lerp": lambda x: torch.lerp(x, x.roll(1, 0), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "einsum of three": lambda x: torch.einsum("ij,ik,il->jkl", x[:100, :40], x[:100, :30], x[:100, :20]),
    "tensordot": lambda x: torch.tensordot(x.view(-1, 30, 10), x.view(-1, 30, 10), ([0, 2], [0, 2])),
    "outer": lambda x: torch.outer(x[:, 0], x[:, 1]),
    "cdist": lambda x: torch.cdist(x[:500], x[500:1200]),
    "cdist of one": lambda x: torch.cdist(x[:300], x[300:600], p=1.0),
    "pdist": lambda x: F.pdist(x[:200]),
    "cosine_similarity": lambda x: F.cosine_similarity(x[:80, None], x[None, :80], dim=2),
    "normalize": lambda x: F.normalize(x),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "cat": lambda x: torch.cat([x, x.relu(), -x], 1),
    "stack": lambda x: torch.stack([x, x.relu()]),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 0),
    "roll": lambda x: x.roll((5, 7), (0, 1)),
    "tril": lambda x: x.tril(),
    "pad": lambda x: F.pad(x, (3, 3), value=1.0),
    "unfold": lambda x: x.unfold(1, 20, 10),
    "fft": lambda x: torch.fft.fft(x),
    "rfft": _blurred,
    "fft2": lambda x: torch.fft.fft2(x.view(-1, 30, 300)),
    "stft": lambda x: torch.stft(x, 64, window=torch.ones(64, device=x.device), return_complex=True),
    "complex": lambda x: torch.view_as_complex(x.view(-1, 150, 2)) ** 2,
    "float64": lambda x: x.double().sin().sum(1),
    "bucketize": lambda x: x * torch.bucketize(x.detach(), torch.linspace(-1, 1, 9, device=x.device)),
    "multinomial": lambda x: x.gather(1, torch.multinomial(x.detach().softmax(1), 5)),
    "softmax of rows": lambda x: x.softmax(0),
    "pow": lambda x: x.abs().pow(1.5),
    "erf": lambda x: x.erf() + x.exp() + x.sin() + x.atan2(x + 1),
}
LINALG: dict[str, Function] = {
    "matrix_power": lambda x: torch.linalg.matrix_power(x, 5),
    "triangular_solve": lambda x: torch.linalg.solve_triangular(
        x + torch.eye(x.shape[-1], device=x.device), x, upper=True
    ),
    "multi_dot": lambda x: torch.linalg.multi_dot([x[0], x[1], x[2]]),
    "frobenius": lambda x: torch.linalg.matrix_norm(x),
    "diagonal": lambda x: torch.linalg.diagonal(x) + torch.diag_embed(x[:, 0]).sum(1),
    "kron": lambda x: torch.kron(x[0, :30, :30], x[1, :30, :30]),
    "cross": lambda x: torch.linalg.cross(x[..., :3], x[..., 3:6]),
    "baddbmm": lambda x: torch.baddbmm(x, x, x),
    "addmm": lambda x: torch.addmm(x[0], x[1], x[2]) + torch.addmv(x[0, 0], x[1], x[2, 0]),
}
