"""The ends of a script's steps: loops as scripts have them, their optimizer steps counted by hand."""

import pytest
import torch
from torch import nn

from memlab.script.optimizer_steps import PATIENCE, Steps


@pytest.fixture
def seen():
    """Return a list of what ``Steps`` reports: a loss for each backward, ``"|"`` for each end of a step."""
    return []


@pytest.fixture(autouse=True)
def followed(seen):
    steps = Steps(lambda loss: seen.append(round(loss.item(), 4)), lambda: seen.append("|"))
    with steps.followed():
        yield


def net():
    return nn.Linear(2, 1)


def loss_of(*models, scale=1.0):
    """The same number each time, with a gradient for every parameter."""
    return scale + sum(parameter.sum() * 0 for model in models for parameter in model.parameters())


def test_a_step_ends_with_its_optimizers_step(seen):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    assert seen == [1, "|", 1, "|"]


def test_micro_batches_belong_to_one_step(seen):
    model = net()
    optimizer = torch.optim.SGD(model.parameters())
    for index in range(4):
        (loss_of(model) / 2).backward()
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()
    assert seen == [0.5, 0.5, "|", 0.5, 0.5, "|"]


def test_the_two_optimizers_of_a_gan_make_one_step(seen):
    critic, generator = net(), net()
    optimizers = [torch.optim.Adam(model.parameters()) for model in (critic, generator)]
    for _ in range(2):
        for model, optimizer in zip((critic, generator), optimizers, strict=True):
            loss_of(model).backward()
            optimizer.step()
    assert seen == [1, 1, "|", 1, 1, "|"]


def test_a_critic_may_step_more_often(seen):
    critic, generator = net(), net()
    first, second = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for index in range(6):
        first.step()
        if index % 3 == 2:
            second.step()
    assert seen == ["|", "|"]


def test_an_optimizer_that_never_steps_is_not_waited_for_longer_than_that(seen):
    model, other = net(), net()
    optimizer, _unused = torch.optim.SGD(model.parameters()), torch.optim.SGD(other.parameters())
    for _ in range(PATIENCE + 2):
        optimizer.step()
    assert seen == ["|"] * 3


def test_lbfgs_ends_its_step_after_all_its_closures(seen):
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert seen.count("|") == 1
    assert seen[-1] == "|"


def test_optimizers_that_step_within_backward_end_the_step_with_it(seen):
    model = nn.Sequential(net(), net())
    optimizers = {parameter: torch.optim.SGD([parameter]) for parameter in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for _ in range(2):
        loss_of(model).backward()
    assert seen == [1, "|", 1, "|"]


class _Outer(torch.optim.Optimizer):
    """One optimizer in another, as for sharpness-aware minimisation."""

    def __init__(self, parameters, **kwargs):
        super().__init__(parameters, {})
        self.inner = torch.optim.SGD(self.param_groups)

    def step(self, closure=None):
        closure()
        self.inner.step()


class _Later(_Outer):
    def step(self, closure=None):
        super().step(closure)
        closure()


@pytest.mark.parametrize("kind", [_Outer, _Later])
def test_an_optimizer_in_another_makes_no_step_of_its_own(kind, seen):
    model = net()
    optimizer = kind(model.parameters())
    optimizer.step(lambda: loss_of(model).backward())
    optimizer.inner.step()  # alone it does all the work
    assert seen == [*[1] * (1 if kind is _Outer else 2), "|", "|"]


def test_a_step_that_the_scaler_leaves_out_goes_on(seen):
    model = net()
    optimizer = torch.optim.SGD(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor in (torch.inf, 1.0):
        optimizer.zero_grad()
        loss = loss_of(model) + factor * model.bias.sum() * 0
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert [item for item in seen if item == item] == [1, "|"]  # as it was before it was scaled


def test_what_is_no_number_is_no_loss(seen):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    (weight * 2).backward(torch.ones(2))
    optimizer.step()
    assert seen == ["|"]


def test_without_an_optimizer_each_backward_is_a_step_after_some(seen):
    model = net()
    for _ in range(PATIENCE + 2):
        loss_of(model).backward()
    assert seen == [*[1] * PATIENCE, "|", 1, "|", 1, "|"]


def test_an_optimizer_that_is_there_is_waited_for(seen):
    model = net()
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(PATIENCE + 2):
        loss_of(model).backward()
    optimizer.step()
    assert seen == [*[1] * (PATIENCE + 2), "|"]


def test_afterwards_pytorch_is_as_it_was():
    torch.optim.SGD(net().parameters())  # with the first one, PyTorch itself changes the class
    before = torch.optim.SGD.step, torch.autograd.backward, torch.optim.Optimizer.__init__, torch.amp.GradScaler.scale
    with Steps(lambda loss: None, lambda: None).followed():
        torch.optim.SGD(net().parameters())
        assert torch.optim.SGD.step is not before[0]
    after = torch.optim.SGD.step, torch.autograd.backward, torch.optim.Optimizer.__init__, torch.amp.GradScaler.scale
    assert after == before
