"""In which order backward runs nodes that a backward pass has made: as with a thread for backward, which CUDA has."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from memlab import predict

STEPS = 6


def gradient_penalty(model, x, run):
    x.requires_grad_()
    out = model(x)
    (gradient,) = run(torch.autograd.grad, out.sum(), x, create_graph=True)
    return out.mean() + (gradient.norm(dim=1) - 1).square().mean()


def gradients_of_gradients(model, x, run):
    loss = model(x).square().mean()
    run(loss.backward, create_graph=True)
    penalty = sum(parameter.grad.square().sum() for parameter in model.parameters())
    model.zero_grad()
    return penalty + 2 * loss


def inner_steps(model, x, run):
    weights = dict(model.named_parameters())
    for _ in range(3):
        loss = torch.func.functional_call(model, weights, (x,)).square().mean()
        gradients = run(torch.autograd.grad, loss, list(weights.values()), create_graph=True)
        weights = {name: weight - 0.1 * g for (name, weight), g in zip(weights.items(), gradients, strict=True)}
    return torch.func.functional_call(model, weights, (x,)).square().mean()


def two_graphs(model, x, run):
    """The first waits, untouched, while backward passes go through the second."""
    x.requires_grad_()
    first = model(x).exp().mean()
    out = model(x.sin())
    for column in range(2):
        (gradient,) = run(torch.autograd.grad, out[:, column].sum(), x, create_graph=True)
        first = first + gradient.square().mean()
    return first


LOSSES = [gradient_penalty, gradients_of_gradients, inner_steps, two_graphs]


def loop(loss_of, run, orders):
    """A loop that writes down by name in which order the backward pass of each step runs its nodes."""

    def train(device):
        torch.manual_seed(0)
        layers = [nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)]
        model = nn.Sequential(*layers).to(device)
        for _ in range(STEPS):
            loss = loss_of(model, torch.rand(16, 8).to(device), run)
            orders.append([])
            watch(loss.grad_fn, orders[-1])
            run(loss.backward)
            model.zero_grad()
            yield loss

    return train


def watch(node, order, seen=None):
    seen = set() if seen is None else seen
    if node is None or node in seen:
        return
    seen.add(node)
    if hasattr(node, "register_prehook"):
        node.register_prehook(lambda *gradients: order.append(node.name()))
    for below, _ in node.next_functions:
        watch(below, order, seen)


def in_two_threads(loss_of):
    """The orders where one thread runs the loop and another all backward passes, both new."""
    orders = []
    with ThreadPoolExecutor(1) as loops, ThreadPoolExecutor(1) as backward:

        def run(*args, **options):
            return backward.submit(*args, **options).result()

        loops.submit(list, loop(loss_of, run, orders)("cpu")).result()
    return orders


def predicted(loss_of):
    orders = []
    predict(loop(loss_of, lambda function, *args, **options: function(*args, **options), orders), gpu="T4", steps=STEPS)
    return orders


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph")
@pytest.mark.parametrize("loss_of", LOSSES)
def test_nodes_are_run_as_by_two_threads(loss_of):
    two, one = in_two_threads(loss_of), predicted(loss_of)
    assert all(two)
    assert one == two
