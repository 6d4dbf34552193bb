"""Gradients of gradients, of each sample, and of functions that are called with other weights."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.loops.case import Case
from tests.loops.matrix.habits import WIDTH, Steps, make_batch, make_model


def cases() -> Iterator[Case]:
    """Each once."""
    for name in DERIVATIVES:
        yield Case(derivative, {"name": name})


def derivative(device: torch.device, *, name: str = "gradient_penalty") -> Steps:
    """Layers that are trained with more than one backward pass, or with none."""
    yield from DERIVATIVES[name](device)


def _gradient_penalty(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x, labels = make_batch(device)
        x.requires_grad_()
        loss = F.cross_entropy(model(x), labels)
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        total = loss + (gradient.norm(dim=1) - 1).square().mean()
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield total


def _smooth_gradient_penalty(device: torch.device) -> Steps:
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x = make_batch(device)[0].requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = gradient.square().sum(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def _per_sample(device: torch.device) -> Steps:
    model = nn.Sequential(nn.Linear(64, 50), nn.Tanh(), nn.Linear(50, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights: dict[str, Tensor] = dict(model.named_parameters())

    def one(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(model, weights, (x[None],))
        return result.square().mean()

    while True:
        x, _ = make_batch(device, 300)
        gradients = torch.func.vmap(torch.func.grad(one), (None, 0))(weights, x)
        for name, weight in weights.items():
            weight.grad = gradients[name].mean(0)
        optimizer.step()
        yield model(x).square().mean().detach()


def _jacobian(device: torch.device) -> Steps:
    model = nn.Sequential(nn.Linear(64, 200), nn.Tanh(), nn.Linear(200, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        x, _ = make_batch(device, 100)
        loss = torch.func.vmap(torch.func.jacrev(model))(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def _inner_steps(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x, labels = make_batch(device, 300)
        weights: dict[str, Tensor] = dict(model.named_parameters())
        for _ in range(2):
            loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), labels)
            gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), gradients, strict=True)}
        loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


DERIVATIVES: dict[str, Callable[[torch.device], Steps]] = {
    "gradient_penalty": _gradient_penalty,
    "smooth_gradient_penalty": _smooth_gradient_penalty,
    "jacobian": _jacobian,
    "inner_steps": _inner_steps,
    "per_sample": _per_sample,  # last: torch.func.vmap of torch.func.grad keeps 260 KiB for ever
}
