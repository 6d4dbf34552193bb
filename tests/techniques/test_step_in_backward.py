import gc
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from memlab.techniques.step_in_backward import step_in_backward

ADAMW = partial(torch.optim.AdamW, lr=1e-2)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def batches() -> list[torch.Tensor]:
    return list(torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(1)))


def test_the_weights_are_those_of_the_plain_loop():
    ours, theirs = model(), model()
    step_in_backward(ours.parameters(), ADAMW)
    optimizer = ADAMW(theirs.parameters())
    for x in batches():
        ours(x).square().sum().backward()
        theirs(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_no_gradient_is_left_and_few_live_at_a_time():
    net, alive = model(), []
    step_in_backward(net.parameters(), ADAMW)
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _: alive.append(sum(other.grad is not None for other in net.parameters()))
        )
    net(batches()[0]).square().sum().backward()
    assert all(parameter.grad is None for parameter in net.parameters())
    assert len(alive) == 4
    assert max(alive) <= 1


def test_a_frozen_parameter_is_left_alone():
    net = model()
    net[0].requires_grad_(False)
    optimizers = step_in_backward(net.parameters(), ADAMW)
    assert list(optimizers) == list(net[2].parameters())
    before = net[0].weight.clone()
    net(batches()[0]).square().sum().backward()
    assert torch.equal(net[0].weight, before)


def test_each_optimizer_can_be_changed():
    net = model()
    for optimizer in step_in_backward(net.parameters(), ADAMW).values():
        optimizer.param_groups[0]["lr"] = 0.0
        optimizer.param_groups[0]["weight_decay"] = 0.0
    before = [parameter.clone() for parameter in net.parameters()]
    net(batches()[0]).square().sum().backward()
    assert all(pytest.approx(0) == (a - b).abs().max().item() for a, b in zip(before, net.parameters(), strict=True))


def test_nothing_is_left_when_the_model_is_gone():
    net = model()
    optimizers = step_in_backward(net.parameters(), ADAMW)
    net(batches()[0]).square().sum().backward()
    weight = next(net.parameters())
    kept = [weakref.ref(tensor.untyped_storage()) for tensor in (weight, optimizers[weight].state[weight]["exp_avg"])]
    del net, optimizers, weight
    gc.collect()
    assert [storage() for storage in kept] == [None, None]
