"""A call that is played takes the same bytes as one that runs, event by event; what could differ is run."""

import copy
import inspect
import random
from types import MethodType

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memlab import predict
from memlab.vgpu.repeats import Repeats

MICRO, STEPS = 6, 3
# In each step the first has no gradients yet. In the first step another one comes before the two that are compared.
PLAYED = MICRO - 4 + (STEPS - 1) * (MICRO - 1)


def mlp():
    return nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 512), nn.GELU(), nn.Linear(512, 5000)
    )


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in range(3)
        )

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Named(nn.Module):
    """Gives a loss, what it was computed from, and what else people give."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(256, 512), nn.Linear(512, 64)

    def forward(self, x):
        hidden = self.inner(x).relu()
        logits = self.outer(hidden)
        return {"loss": logits.square().mean(), "logits": logits, "hidden": (hidden,), "count": 3, "cache": None}


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.log = nn.Linear(256, 256), []

    def forward(self, x):
        y = self.layer(x).relu()
        self.log.append(y.detach())
        return y


class Skipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            if random.random() < 0.7:
                x = layer(x).relu()
        return x


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, x):
        return self.layer(x) if x.isfinite().all() else x


class Masked(nn.Module):
    """Asks about places that it counts itself, about its mask, and nothing about what it is given."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)
        self.register_buffer("places", torch.arange(64), persistent=False)

    def forward(self, x, mask, numbers):
        if (torch.arange(64, device=x.device).diff() != 1).any() or bool((torch.ones_like(numbers) == 0).any()):
            return x
        y = self.layer(x)
        return y if mask.all() else y * mask.sum(dim=-1, keepdim=True)


class Counting(Masked):
    """Asks about a buffer."""

    def forward(self, x, mask, numbers):
        return super().forward(x, mask, numbers) if self.places[-1] == 63 else x


class Past:
    """As the cache of keys and values that a model of transformers gives."""

    def __init__(self, kept):
        self.layers, self.first = [[kept, kept * 2]], kept


class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(256, 512), nn.Linear(512, 64)

    def forward(self, x):
        hidden = self.inner(x)
        return {"logits": self.outer(hidden.relu()), "past": Past(hidden)}


class Counted(Caching):
    """Gives a number that it knows: how many tokens its cache has."""

    def forward(self, x):
        return {**super().forward(x), "tokens": torch.tensor(len(x), device=x.device)}


class Local(Caching):
    """Gives what cannot be copied."""

    def forward(self, x):
        return {**super().forward(x), "function": lambda: None}


def data(device, rows=64):
    return torch.randn(rows, 256, device=device)


def loss_outside(model, device, number):
    logits = model(data(device))
    return functional.cross_entropy(logits, torch.zeros(64, dtype=torch.long, device=device))


def loss_direct(model, device, number):
    return model(data(device)).sum()


def ones_masked(model, device, number):
    return model(data(device), torch.ones(64, 8, device=device, dtype=torch.bool), counted(device)).sum()


def counted(device):
    return torch.randint(9, (64,)).to(device)


def other_masks(model, device, number):
    """Of two micro-batches the second is shorter, always in the same place."""
    mask = torch.ones(64, 8, dtype=torch.bool)
    mask[:, 8 - number % 2 :] = False
    return model(data(device), mask.to(device), counted(device)).sum()


def masks_of_no_two(model, device, number):
    mask = torch.arange(64 * 8).view(64, 8) >= number + 1
    return model(data(device), mask.to(device), counted(device)).sum()


def mask_that_is_not_known(model, device, number):
    return model(data(device), torch.rand(64, 8, device=device) < 2, counted(device)).sum()


def cached(model, device, number):
    given = model(data(device))
    assert given["past"].layers[0][0] is given["past"].first
    return given["logits"].mean()


def counted_by_the_model(model, device, number):
    given = model(data(device, 64 if number % 2 else 32))
    assert given["tokens"] == (64 if number % 2 else 32)
    return given["logits"].mean()


def images(model, device, number):
    logits = model(torch.randn(8, 3, 32, 32, device=device))
    return functional.cross_entropy(logits, torch.zeros(8, dtype=torch.long, device=device))


def two_lengths(model, device, number):
    return model(data(device, 64 if number % 2 else 32)).square().mean()


def named(model, device, number):
    return model(data(device))["loss"] / MICRO


def loss_and_logits(model, device, number):
    given = model(data(device))
    return given["loss"] + given["logits"].mean()


def teacher(model, device, number):
    logits = model(data(device))
    with torch.no_grad():
        goal = model(data(device, 128))[:64]
    return (logits - goal).square().mean()


def first_is_not_used(model, device, number):
    model(data(device))
    return model(data(device, 32)).mean()


def twice(model, device, number):
    return (model(data(device)) - model(data(device))).square().mean()


def with_a_gradient_for_the_input(model, device, number):
    return model(data(device).requires_grad_()).mean()


def accumulating(make, loss_of, *, dtype=None, set_to_none=True, prepare=lambda model: None, backward=None):
    """A loop with so many micro-batches a step."""

    def train(device):
        random.seed(0)
        model = make().to(device)
        prepare(model)
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            for number in range(MICRO):
                with torch.autocast("cuda", dtype, enabled=dtype is not None):
                    loss = loss_of(model, device, number)
                (backward or torch.Tensor.backward)(loss)
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
            yield loss

    return train


def predicted(train, monkeypatch):
    """The prediction with and without playing, and how many calls were played."""
    played = []
    with monkeypatch.context() as patch:
        init = Repeats.__init__
        patch.setattr(Repeats, "__init__", lambda self, *args: (init(self, *args), played.append(self))[0])
        ours = predict(train, steps=STEPS)
    with monkeypatch.context() as patch:
        patch.setattr(Repeats, "watch", lambda *args: None)
        theirs = predict(train, steps=STEPS)
    return ours, theirs, played[-1].played


def told(trace):
    """All that a trace says of memory."""
    events = [(event.bytes, event.category, event.phase, event.module) for event in trace.events]
    return trace.steps, trace.peak_reserved, events, trace.by_category, trace.flops


def freeze(model):
    model[0].requires_grad_(False)


@pytest.mark.parametrize(
    ("train", "played"),
    [
        pytest.param(accumulating(mlp, loss_outside), PLAYED, id="loss outside"),
        pytest.param(accumulating(mlp, loss_direct), PLAYED, id="loss direct"),
        pytest.param(accumulating(mlp, loss_outside, dtype=torch.bfloat16), PLAYED, id="autocast"),
        pytest.param(accumulating(convolutions, images), PLAYED, id="convolutions"),
        pytest.param(accumulating(convolutions, images, dtype=torch.float16), PLAYED, id="convolutions, float16"),
        pytest.param(accumulating(mlp, two_lengths), PLAYED - 4, id="two lengths"),
        pytest.param(accumulating(Checkpointed, loss_direct), PLAYED, id="checkpointed"),
        pytest.param(accumulating(Named, named), PLAYED, id="named outputs"),
        pytest.param(accumulating(Masked, ones_masked), PLAYED, id="reads what is known"),
        pytest.param(accumulating(Masked, other_masks), PLAYED - 4, id="two masks"),
        pytest.param(accumulating(Caching, cached), PLAYED, id="cache among the outputs"),
        pytest.param(accumulating(Counted, counted_by_the_model), PLAYED - 4, id="a known number among the outputs"),
        pytest.param(accumulating(mlp, teacher), PLAYED + 10, id="without gradients between"),
        pytest.param(accumulating(mlp, loss_outside, prepare=freeze), PLAYED, id="frozen"),
        pytest.param(accumulating(mlp, loss_outside, set_to_none=False), PLAYED + 2, id="gradients stay"),
        pytest.param(accumulating(mlp, first_is_not_used), PLAYED, id="one is not used"),
    ],
)
def test_calls_that_are_alike_are_played_and_nothing_else_is_other(train, played, monkeypatch):
    ours, theirs, count = predicted(train, monkeypatch)
    assert told(ours) == told(theirs)
    assert ours.least_seconds == pytest.approx(theirs.least_seconds)
    assert ours.likely_seconds == pytest.approx(theirs.likely_seconds)
    assert count == played


def evaluating(context, *, dtype=None, micro=1):
    """A loop that evaluates its model before each step."""

    def train(device):
        model = mlp().to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            model.eval()
            with context():
                for number in range(MICRO):
                    with torch.autocast("cuda", dtype, enabled=dtype is not None):
                        loss_outside(model, device, number).item()
            model.train()
            for number in range(micro):
                loss = loss_outside(model, device, number)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    return train


@pytest.mark.parametrize(
    ("train", "played"),
    [
        pytest.param(evaluating(torch.no_grad), STEPS * MICRO - 4, id="no_grad"),
        pytest.param(evaluating(torch.inference_mode), STEPS * MICRO - 4, id="inference_mode"),
        pytest.param(evaluating(torch.no_grad, dtype=torch.bfloat16), STEPS * MICRO - 4, id="autocast"),
        pytest.param(evaluating(torch.no_grad, micro=MICRO), STEPS * MICRO - 4 + PLAYED, id="and accumulates"),
    ],
)
def test_evaluations_are_played(train, played, monkeypatch):
    ours, theirs, count = predicted(train, monkeypatch)
    assert told(ours) == told(theirs)
    assert count == played


@pytest.mark.parametrize(
    "train",
    [
        pytest.param(accumulating(Named, loss_and_logits), id="two outputs are used"),
        pytest.param(accumulating(mlp, twice), id="twice before one backward"),
        pytest.param(accumulating(mlp, with_a_gradient_for_the_input), id="an input wants its gradient"),
        pytest.param(accumulating(Keeping, loss_direct), id="the model keeps its output"),
        pytest.param(accumulating(Skipping, loss_direct), id="the model draws on the host"),
        pytest.param(accumulating(Reading, loss_direct), id="the model reads a number"),
        pytest.param(accumulating(Masked, masks_of_no_two), id="it reads others each time"),
        pytest.param(accumulating(Masked, mask_that_is_not_known), id="it reads a mask that nobody knows"),
        pytest.param(accumulating(Counting, ones_masked), id="it reads a buffer"),
        pytest.param(accumulating(Local, cached), id="its result cannot be copied"),
        pytest.param(
            accumulating(mlp, loss_direct, prepare=lambda m: m[0].weight.register_hook(lambda grad: grad * 2)),
            id="a hook on a gradient",
        ),
        pytest.param(
            accumulating(mlp, loss_direct, backward=lambda loss: (loss.backward(retain_graph=True), loss.backward())),
            id="backward twice",
        ),
    ],
)
def test_what_may_come_out_otherwise_is_run(train, monkeypatch):
    ours, theirs, count = predicted(train, monkeypatch)
    assert told(ours) == told(theirs)
    assert count == 0


def test_a_copy_of_a_model_is_a_model_of_its_own(monkeypatch):
    def train(device):
        model, average = mlp().to(device), None
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            for number in range(MICRO):
                loss = loss_outside(model, device, number)
                loss.backward()
            average = average or copy.deepcopy(model)
            average(data(device, 128)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    ours, theirs, count = predicted(train, monkeypatch)
    assert told(ours) == told(theirs)
    assert count >= PLAYED


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # which torch.compile has
def test_a_model_that_is_compiled_later_is_compiled_as_ever(monkeypatch):
    def train(device):
        model = mlp().to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(STEPS):
            called = model if step == 0 else torch.compile(model)
            for number in range(MICRO):
                loss = loss_outside(called, device, number)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    ours, theirs, count = predicted(train, monkeypatch)
    assert told(ours) == told(theirs)
    assert count == MICRO - 4


@pytest.mark.parametrize("has_own", [False, True])
def test_a_model_is_called_as_before(has_own):
    """Libraries put a method of their own in the place of forward, and ask for its arguments."""
    signatures, calls = [], []

    def forward(self, input):
        calls.append(input.shape)
        return nn.Sequential.forward(self, input)

    def train(device):
        model = mlp().to(device)
        if has_own:
            model.forward = MethodType(forward, model)
        before = inspect.signature(model.forward)
        for number in range(3):
            loss_direct(model, device, number).backward()
            signatures.append((before, inspect.signature(model.forward)))
        yield

    predict(train, steps=1)
    assert all(before == after for before, after in signatures)
    assert len(calls) == (3 if has_own else 0)


def test_a_model_that_is_deleted_is_gone_at_once():
    def train(device):
        first = mlp().to(device)
        for number in range(MICRO):
            loss_direct(first, device, number).backward()
        del first
        peaks.append(torch.cuda.memory_allocated())
        yield

    peaks = []
    predict(train, steps=1)
    assert peaks[0] < 18 * 2**20  # cuBLAS's workspaces; the weights and their gradients were 25 MiB more


def test_a_forward_that_is_put_there_later_stays():
    """As accelerate does it for mixed precision, after a model was called already; then something is compiled."""

    def train(device):
        model = mlp().to(device)
        loss_direct(model, device, 0)
        before = model.forward
        model.forward = lambda x: calls.append(1) or before(x)
        torch.compile(nn.Linear(4, 4))
        loss_direct(model, device, 0)
        yield

    calls = []
    predict(train, steps=1)
    assert calls == [1]


def test_a_model_that_is_older_than_the_prediction_is_as_it_was():
    model = mlp()

    def train(device):
        there = model.to(device)
        while True:
            for number in range(MICRO):
                loss = loss_direct(there, device, number)
                loss.backward()
            yield loss

    before = dict(vars(model))
    predict(train)
    assert vars(model).keys() == before.keys()


def test_memory_that_runs_out_in_a_call_that_is_played_is_told():
    def train(device):
        model, kept = mlp().to(device), []
        while True:
            for number in range(MICRO):
                loss_direct(model, device, number).backward()
                kept.append(torch.empty(2**30, dtype=torch.uint8, device=device))
            yield

    trace = predict(train, budget="6 GiB", steps=9)
    assert trace.oom
    assert trace.oom.limit == 6 * 2**30
