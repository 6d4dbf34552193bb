"""A trace knows each piece of memory: its name, its shape, when it comes and goes, and the line of the loop at work."""

import inspect
import weakref
from collections import UserDict
from collections.abc import Mapping
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.categories import Category
from memlab.tracking.variables import variables


def train(device, *, batch_size=8):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        loss = model(torch.ones(batch_size, 16, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


@pytest.fixture(scope="module", params=["measured", "predicted"])
def trace(request):
    return measure(train, device="cpu") if request.param == "measured" else predict(train, gpu="T4")


def test_parameters_gradients_and_state_have_their_names_and_shapes(trace):
    shapes = {storage.name: storage.shape for storage in trace.storages if storage.name}
    for name, parameter in nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).named_parameters():
        for part in (name, f"{name}.grad", f"{name} exp_avg", f"{name} exp_avg_sq"):
            assert torch.Size(shapes[part]).numel() == parameter.numel()
    assert all(s.dtype == "float32" for s in trace.storages if s.name and not s.name.endswith("num_batches_tracked"))


def test_each_event_belongs_to_a_storage_and_their_bytes_add_up(trace):
    live = [storage.start for storage in trace.storages]
    for event in trace.events:
        live[event.storage] += event.bytes
        assert live[event.storage] >= 0
        assert trace.storages[event.storage].category is event.category
    assert sum(live) == trace.allocated[-1]
    assert sum(s.start for s in trace.storages) == sum(trace.start.values())


def test_an_activation_has_the_shape_of_the_batch(trace):
    born = {event.storage: event for event in reversed(trace.events) if event.bytes > 0}
    shapes = {(born[i].module, s.shape) for i, s in enumerate(trace.storages) if i in born and s.start == 0}
    assert ("0", (8, 32)) in shapes


def test_the_line_at_work_is_that_of_the_loop(trace):
    lines, first = inspect.getsourcelines(train)
    said = {(event.phase.value, lines[event.line - first].strip()) for event in trace.events}
    assert ("backward", "loss.backward()") in said
    assert ("optimizer", "optimizer.step()") in said
    assert "optimizer.zero_grad()" in {line for _, line in said}
    assert any(phase == "forward" and line.startswith("loss = model(") for phase, line in said)


def test_time_goes_on_and_a_prediction_ends_when_it_says(trace):
    times = [event.seconds for event in trace.events]
    assert times[0] >= 0
    assert times[-1] > 0
    assert all(a <= b for a, b in pairwise(times))
    if trace.source == "predicted":
        assert times[-1] <= trace.likely_seconds * 1.01


def trained(device, *, forget=False):
    model = nn.Linear(16, 100).to(device)
    while True:
        batch = {"rows": torch.ones(8, 16, device=device)}
        logits = model(batch["rows"])
        loss = logits.square().mean()
        if forget:
            del logits
        loss.backward()
        yield loss


@pytest.mark.parametrize("run", [partial(measure, device="cpu"), predict])
def test_tensors_have_the_names_of_the_loops_variables(run):
    trace = run(trained)
    assert {storage.variable for storage in trace.storages} == {"", "batch.rows", "logits", "loss"}
    assert {s.shape for s in trace.storages if s.variable == "logits"} == {(8, 100)}
    held = [(s.name, s.variable) for s in trace.storages if s.category is Category.HELD]
    assert held == [("Linear addmm", "logits")]  # of the step before, known by what made it


@pytest.mark.parametrize("run", [partial(measure, device="cpu"), predict])
def test_the_steps_of_a_loop_may_be_another_loops_or_a_functions(run):
    def by_function(device):
        def step():
            scores = model(torch.ones(8, 16, device=device))
            scores.square().mean().backward()

        model = nn.Linear(16, 100).to(device)
        while True:
            step()
            yield torch.zeros(())

    def by_loop(device):
        yield from trained(device)

    named = ({storage.variable for storage in run(train).storages} for train in (by_loop, by_function))
    assert next(named) >= {"batch.rows", "logits"}
    assert "scores" in next(named)


@pytest.mark.parametrize("run", [partial(measure, device="cpu"), predict])
def test_functions_keep_no_tensor_alive_because_they_were_looked_at(run):
    seen = []

    def train(device):
        def step():
            scores = model(torch.ones(8, 16, device=device))
            loss, follower = scores.square().mean(), weakref.ref(scores)
            loss.backward()
            del scores
            seen.append(follower())

        model = nn.Linear(16, 100).to(device)
        while True:
            step()
            yield torch.zeros(())

    run(train)
    assert seen
    assert set(seen) == {None}


@pytest.mark.parametrize("run", [partial(measure, device="cpu"), predict])
def test_to_name_tensors_keeps_none_alive(run):
    seen = []

    def train(device):
        loop = trained(device, forget=True)
        while True:
            kept = torch.zeros(1000, device=device)
            follower = weakref.ref(kept)
            yield next(loop)
            del kept
            seen.append(follower())

    trace = run(train)
    assert seen == [None, None]
    assert not [storage for storage in trace.storages if storage.variable == "logits"]


def test_only_values_of_what_may_be_a_batch_are_looked_at():
    tensor = torch.ones(1)

    class Shelf(Mapping):
        def __getitem__(self, name):
            raise AssertionError("it would be read from a file")

        def __iter__(self):
            return iter(["a"])

        def __len__(self):
            return 1

    def loop():
        batch, outputs = {"ids": tensor, "name": "text"}, UserDict(logits=tensor)
        vocabulary, shelf = dict.fromkeys(range(1000), tensor), Shelf()
        yield batch, outputs, vocabulary, shelf

    running = loop()
    next(running)
    assert {name for name, _ in variables(running.gi_frame)} == {"tensor", "batch.ids", "outputs.logits"}


def test_a_loop_that_takes_its_variables_as_a_dictionary_keeps_it():
    def train(device):
        width = 16
        settings = locals()
        weight = torch.ones(width, requires_grad=True)
        for _ in range(3):
            loss = weight.sum()
            loss.backward()
            yield loss
            assert settings["width"] == 16
            assert "loss" not in settings

    assert not [storage for storage in measure(train, device="cpu").storages if storage.variable]


def test_a_storage_of_many_gradients_is_a_bucket_and_not_one_of_them():
    def train(device):
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).to(device)
        parameters = list(model.parameters())
        while True:
            bucket = torch.zeros(sum(p.numel() for p in parameters), device=device)
            for parameter, part in zip(parameters, bucket.split([p.numel() for p in parameters]), strict=True):
                parameter.grad = part.view_as(parameter)
            loss = model(torch.ones(8, 64, device=device)).sum()
            loss.backward()
            yield loss

    names = {storage.name for storage in predict(train).storages}
    assert "bucket of gradients" in names
    assert not [name for name in names if name.endswith(".grad")]
