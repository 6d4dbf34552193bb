"""Optimizers, schedulers, parameter groups, gradient clipping."""

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from tests.loops.case import Case
from tests.loops.ordinary.catalogue import FOREACH, LOOPS, ordinary, with_outside
from tests.loops.ordinary.small import convnet, mlp, rows

OPTIMIZERS = {
    "adam": functools.partial(torch.optim.Adam, amsgrad=True),
    "rmsprop": functools.partial(torch.optim.RMSprop, centered=True, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "asgd": torch.optim.ASGD,
    "rprop": torch.optim.Rprop,
    "adafactor": torch.optim.Adafactor,
}

SCHEDULERS = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "one_cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
    "warm_restarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 2)),
    "exponential": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9),
    "polynomial": lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 4),
    "cyclic": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1),
    "warmup_then_cosine": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2), lr_scheduler.CosineAnnealingLR(optimizer, 4)],
        milestones=[2],
    ),
}


def with_optimizer(device, optimizer="adam"):
    yield from trained_by(OPTIMIZERS[optimizer], device)


def trained_by(make, device):
    model = mlp().to(device)
    optimizer = make(model.parameters())
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.item()


def with_scheduler(device, scheduler="step"):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[scheduler](optimizer)
    for step in range(4):
        x, y = (tensor.to(device) for tensor in rows(512))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        assert math.isfinite(scheduler.get_last_lr()[0]), step
        yield loss.item()


LOOPS += [Case(with_optimizer, {"optimizer": name}, differs=FOREACH) for name in OPTIMIZERS]
LOOPS += [Case(with_scheduler, {"scheduler": name}) for name in SCHEDULERS]


@ordinary()
def reduce_on_plateau(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(4):
        x, y = (tensor.to(device) for tensor in rows(512))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step(loss.item())
        yield loss


@with_outside()
def lbfgs():
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))

    def train(device):
        model.to(device)
        x = torch.linspace(-1, 1, 64 * 64, device=device).reshape(64, 64)
        target = torch.sin(3 * x.sum(1, keepdim=True))
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=3)

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            loss.backward()
            return loss

        for _ in range(3):
            yield optimizer.step(closure).item()

    return train, (model,)


@ordinary(differs="strong Wolfe searches until numbers please it, and a prediction has none")
def lbfgs_strong_wolfe(device):
    x = torch.randn(64, 8).to(device)
    weights = nn.Parameter(torch.zeros(8, 1, device=device))
    optimizer = torch.optim.LBFGS([weights], line_search_fn="strong_wolfe")
    target = x.sum(1, keepdim=True)

    def closure():
        optimizer.zero_grad()
        loss = (x @ weights - target).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        yield optimizer.step(closure)


@ordinary(differs=FOREACH)
def parameter_groups(device):
    model = mlp().to(device)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, "lr": 1e-4}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for step in range(3):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (step + 1) / 3
        x, y = (tensor.to(device) for tensor in rows())
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss


@with_outside(differs=FOREACH)
def unfreezing():
    model = convnet()

    def train(device):
        model.to(device)
        for parameter in model[:6].parameters():
            parameter.requires_grad = False
        optimizer = torch.optim.Adam(model[-1].parameters(), lr=1e-3)
        for epoch in range(3):
            if epoch == 1:
                for parameter in model[:6].parameters():
                    parameter.requires_grad = True
                optimizer.add_param_group({"params": model[:6].parameters(), "lr": 1e-4})
            x = torch.randn(8, 3, 32, 32, device=device)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    return train, (model,)


@ordinary()
def clipped_by_norm(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0, error_if_nonfinite=True)
        if torch.isfinite(norm):
            optimizer.step()
        yield loss


@ordinary()
def clipped_by_value(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        yield loss


@ordinary(differs=FOREACH)
def muon_and_adamw(device):
    model = mlp().to(device)
    muon = torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.02)
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.dim() != 2])
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        for optimizer in (muon, adamw):
            optimizer.step()
            optimizer.zero_grad()
        yield loss


@ordinary()
def written_by_hand(device):
    model = mlp().to(device)
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter, v in zip(model.parameters(), velocity, strict=True):
                v.mul_(0.9).add_(parameter.grad)
                parameter -= 0.1 * v
        yield loss.item()


@ordinary()
def accumulated_gradients(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    running = 0.0
    for step in range(1, 5):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        running += loss.item()
        if step % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        yield running / step


class Lion(torch.optim.Optimizer):
    """As it is found in many repositories."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                beta1, beta2 = group["betas"]
                update = state["exp_avg"].clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
                p.add_(update, alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)


@ordinary()
def optimizer_of_ones_own(device):
    yield from trained_by(Lion, device)
