"""The category of each byte where it is not plain: double backward, closures, errors, leaks, dataclasses."""

import contextlib
import dataclasses

import pytest
import torch
from torch import nn

from memlab.run import measure
from memlab.trace import Category, Phase
from memlab.tracking import Tracker
from tests.device import DEVICE, counted_by_hand

CPU = torch.device("cpu")
TENSOR = 4 * 64 * 64


def events_of(step):
    with Tracker(CPU) as tracker:
        kept = step()
    events = tracker.xray().events
    del kept
    return events


def born(events, category, phase=None):
    return [e for e in events if e.bytes == TENSOR and e.category is category and phase in (None, e.phase)]


def test_a_backward_that_is_differentiated_again_is_no_recomputation():
    x = torch.randn(64, 64, requires_grad=True)

    def gradient_penalty():
        (gradient,) = torch.autograd.grad(x.tanh().exp().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        x.grad = None

    events = events_of(gradient_penalty)
    assert born(events, Category.RECOMPUTED) == []
    # The gradients of exp and of tanh, and what tanh's formula keeps, wait for the second backward.
    assert len(born(events, Category.ACTIVATION, Phase.BACKWARD)) >= 2


def test_gradients_of_parameters_that_come_and_go_are_gradients():
    def step():
        for _ in range(50):
            layer = nn.Linear(64, 64, bias=False)
            layer(torch.ones(1, 64)).sum().backward()
            del layer

    assert len(born(events_of(step), Category.GRADIENT)) == 50


def test_a_parameter_without_a_module_has_its_gradient_named():
    def step():
        weight = nn.Parameter(torch.zeros(64, 64))
        (torch.ones(1, 64) @ weight).sum().backward()

    assert len(born(events_of(step), Category.GRADIENT)) == 1


def test_after_an_optimizer_step_that_raised_the_phase_is_another():
    class Raising(torch.optim.SGD):
        def step(self):
            raise ZeroDivisionError

    optimizer = Raising([nn.Parameter(torch.ones(1))])

    def step():
        with contextlib.suppress(ZeroDivisionError):
            optimizer.step()
        return torch.zeros(64, 64)

    assert [event.phase for event in events_of(step) if event.bytes == TENSOR] == [Phase.OTHER]


def test_an_optimizer_s_closure_is_a_forward_and_a_backward():
    model, x = nn.Linear(64, 64, bias=False), torch.randn(64, 64)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    events = events_of(lambda: optimizer.step(closure))
    assert len(born(events, Category.ACTIVATION, Phase.FORWARD)) == 1  # the layer's result, which square keeps
    assert len(born(events, Category.GRADIENT, Phase.BACKWARD)) == 1
    assert {event.phase for event in events[-3:]} == {Phase.OPTIMIZER}


@dataclasses.dataclass
class Output:
    logits: torch.Tensor


class Head(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.inner(x).tanh())


class Whole(nn.Module):
    def __init__(self, wrap, unwrap):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.head = Head(wrap)
        self.unwrap = unwrap

    def forward(self, *, x):
        return self.unwrap(self.head(x=self.first(x).relu()))


@pytest.mark.parametrize(
    ("wrap", "unwrap"),
    [
        (lambda x: x, lambda x: x),
        (lambda x: {"logits": x}, lambda out: out["logits"]),
        (lambda x: Output(x), lambda out: out.logits),
        (lambda x: (None, [x]), lambda out: out[1][0]),
    ],
)
def test_a_module_has_its_name_in_backward_whatever_it_takes_and_returns(wrap, unwrap):
    model, x = Whole(wrap, unwrap), torch.randn(64, 64)
    events = events_of(lambda: model(x=x).square().sum().backward())
    backward = [e for e in events if e.phase is Phase.BACKWARD and e.bytes == TENSOR]
    names = {event.op: event.module for event in backward}
    assert names["aten.tanh_backward"] == "head"
    assert names["aten.threshold_backward"] == "Whole"  # relu, between the two
    assert backward[-1].module == "first"  # the gradient of its weights


def leaking(device, *, length=5):
    model = nn.Linear(64, 64, bias=False).to(device)
    x, total = torch.ones(64, 64, device=device), []
    while True:
        out = model(x)
        loss = out.sum()
        loss.backward()
        total.append(out)  # forgotten there
        del out
        yield loss


def test_what_is_held_over_the_end_of_a_step_is_no_temporary():
    trace = measure(leaking, device=DEVICE)
    assert trace.start[Category.HELD] >= trace.xray_step * TENSOR
    assert trace.start.get(Category.TEMPORARY, 0) == 0
    assert trace.start[Category.INPUT] == TENSOR  # x, which is there before the first forward


def test_what_is_made_and_kept_outside_of_forward_is_held_over_at_once():
    kept = []
    events = events_of(lambda: kept.append(torch.zeros(64, 64)))
    assert len(born(events, Category.HELD)) == 1


@counted_by_hand
def test_the_loss_that_is_yielded_is_not_held_over():
    def train(device):
        model = nn.Linear(64, 64, bias=False).to(device)
        while True:
            loss = model(torch.ones(64, 64, device=device)).sum(dim=1)[0]
            loss.backward()
            model.zero_grad()
            yield loss

    trace = measure(train, device=DEVICE, xray="every")
    assert trace.start == {Category.PARAMETER: TENSOR, Category.ACTIVATION: 4 * 64}


def test_a_batch_that_was_loaded_a_step_ahead_is_input():
    def train(device):
        model = nn.Linear(64, 64, bias=False).to(device)
        ahead = torch.ones(64, 64, device=device)
        while True:
            batch = ahead
            model(batch).sum().backward()
            model.zero_grad()
            ahead = torch.ones(64, 64, device=device)
            yield None

    trace = measure(train, device=DEVICE, xray="every")
    assert trace.by_category[Category.INPUT] == TENSOR
    assert Category.HELD not in trace.start


def test_a_step_that_ran_out_of_memory_holds_nothing_over():
    def too_much(device):
        x = torch.zeros(64, 64, device=device)
        yield 0.0
        y = torch.ones(64, 64) * 2
        x @ y @ torch.zeros(64, 64 * 64)
        yield 0.0

    trace = measure(too_much, device=DEVICE, budget=10 * TENSOR)
    assert trace.oom
    assert Category.HELD not in {event.category for event in trace.events}


class InTwoParts(nn.Module):
    """A model that a loop calls part by part, so none of its modules has entered the whole of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        self.second.register_buffer("scales", torch.ones(64, 64))


def test_a_step_that_ran_out_of_memory_names_what_it_had_not_reached():
    def too_much(device):
        model = InTwoParts().to(device).requires_grad_(False)
        x = model.first(torch.zeros(64, 64, device=device))
        yield model.second(x.repeat(64, 1)).sum()

    trace = measure(too_much, device=DEVICE, budget=20 * TENSOR)
    assert trace.oom
    at_the_end = {category: counts[-1] for category, counts in trace.timeline.items()}
    assert at_the_end[Category.PARAMETER] == 2 * TENSOR
    assert at_the_end[Category.BUFFER] == TENSOR
