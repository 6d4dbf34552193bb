"""Every optimizer of torch.optim, in each way that it has, and what people do to gradients and weights around it.

Three layers, so that the gradients, the state and what an update needs beside them are most of the memory. Not here:
L-BFGS, which stops when its numbers say so.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import swa_utils

from tests.loops.case import Case

WAYS: dict[str, dict[str, bool]] = {
    "default": {},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False},
    "fused": {"fused": True},
    "capturable": {"foreach": True, "capturable": True},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "amsgrad": {"amsgrad": True},
    "maximize": {"maximize": True},
    "weight_decay": {"weight_decay": 0.1},
    "decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "centered": {"centered": True, "momentum": 0.9},
}
FOREACH = ("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
FUSED = ("Adagrad", "Adam", "AdamW", "SGD")


def cases() -> Iterator[Case]:
    """All optimizers in all their ways, and the options that change what an update needs."""
    for optimizer in FOREACH:
        yield Case(update, {"optimizer": optimizer, "way": "foreach"})
        if optimizer != "ASGD":  # which asks for a number
            yield Case(update, {"optimizer": optimizer, "way": "for-loop"})
    for optimizer in FUSED:
        yield Case(update, {"optimizer": optimizer, "way": "fused"})
    for optimizer in ("Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Rprop", "Adadelta", "ASGD"):
        yield Case(update, {"optimizer": optimizer, "way": "capturable"})
    for optimizer, options in (
        ("Adafactor", ("", "weight_decay", "maximize")),
        ("Muon", ("", "nesterov")),
        ("Adam", ("amsgrad", "maximize", "weight_decay")),
        ("AdamW", ("amsgrad", "maximize")),
        ("NAdam", ("decoupled",)),
        ("RAdam", ("decoupled",)),
        ("RMSprop", ("centered", "momentum")),
        ("SGD", ("momentum", "nesterov", "maximize")),
        ("Adagrad", ("weight_decay",)),
    ):
        for name in options:
            yield Case(update, {"optimizer": optimizer, "options": name})
    for optimizer, name in (("Adam", "amsgrad"), ("SGD", "nesterov")):
        for way in ("for-loop", "fused"):
            yield Case(update, {"optimizer": optimizer, "way": way, "options": name})
    for around in AROUND:
        yield Case(update, {"optimizer": "AdamW", "around": around})
    for optimizer in ("AdamW", "Adafactor", "SGD"):
        yield Case(update, {"optimizer": optimizer, "dtype": "bfloat16"})
    yield Case(update, {"optimizer": "AdamW", "dtype": "float64"})
    yield Case(averaged, {"average": "swa"})
    yield Case(averaged, {"average": "ema"})
    yield Case(averaged, {"average": "ema_of_buffers"})
    yield Case(averaged, {"average": "by_hand"})


def update(
    device: torch.device,
    *,
    optimizer: str = "AdamW",
    way: str = "default",
    options: str = "",
    around: str = "",
    dtype: str = "float32",
    width: int = 700,
) -> Iterator[Tensor]:
    """Three layers, one optimizer."""
    model = _layers(width, optimizer).to(device, getattr(torch, dtype))
    settings = WAYS[way] | OPTIONS[options]
    if optimizer == "Muon" and not settings.get("nesterov"):
        settings = settings | {"nesterov": False}
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3, **settings)
    prepare = AROUND.get(around)
    while True:
        x = torch.randn(256, width).to(device, getattr(torch, dtype))
        steps.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if prepare:
            prepare(model, steps)
        steps.step()
        yield loss


def averaged(device: torch.device, *, average: str = "swa", width: int = 700) -> Iterator[Tensor]:
    """A second model that holds the average of the first."""
    model = _layers(width, "AdamW").to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    follow = AVERAGES[average](model)
    while True:
        loss = model(torch.randn(256, width).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        follow(model)
        yield loss


def _layers(width: int, optimizer: str) -> nn.Sequential:
    with_bias = optimizer != "Muon"  # which takes matrices only
    layers = [nn.Linear(width, width, bias=with_bias) for _ in range(3)]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def _scaled(model: nn.Module, steps: torch.optim.Optimizer) -> None:
    device = next(model.parameters()).device
    scaler = torch.amp.GradScaler(device.type)
    scaler.scale(torch.ones((), device=device))
    scaler.unscale_(steps)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def _with_noise(model: nn.Module, steps: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.add_(torch.randn_like(parameter.grad), alpha=0.01)


def _watched_norm(model: nn.Module, steps: torch.optim.Optimizer) -> None:
    torch.stack([p.grad.detach().norm() for p in model.parameters() if p.grad is not None]).norm()


AROUND: dict[str, Callable[[nn.Module, torch.optim.Optimizer], object]] = {
    "clip_norm": lambda model, steps: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    "clip_norm for-loop": lambda model, steps: nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False),
    "clip_norm inf": lambda model, steps: nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=torch.inf),
    "clip_norm 1": lambda model, steps: nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=1.0),
    "clip_value": lambda model, steps: nn.utils.clip_grad_value_(model.parameters(), 1.0),
    "clip_value for-loop": lambda model, steps: nn.utils.clip_grad_value_(model.parameters(), 1.0, foreach=False),
    "unscale": _scaled,
    "noise": _with_noise,
    "norm": _watched_norm,
    "flat": lambda model, steps: nn.utils.parameters_to_vector(model.parameters()).norm(),
}


def _ema_by_hand(model: nn.Module) -> Callable[[nn.Module], None]:
    shadow = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def follow(model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            shadow[name].mul_(0.99).add_(value, alpha=0.01)

    return follow


AVERAGES: dict[str, Callable[[nn.Module], Callable[[nn.Module], None]]] = {
    "swa": lambda model: swa_utils.AveragedModel(model).update_parameters,
    "ema": lambda model: (
        swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.99)).update_parameters
    ),
    "ema_of_buffers": lambda model: (
        swa_utils.AveragedModel(model, avg_fn=swa_utils.get_ema_avg_fn(0.99), use_buffers=True).update_parameters
    ),
    "by_hand": _ema_by_hand,
}
