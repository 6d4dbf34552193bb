"""Objects that an earlier error, or the notebook, still holds when a run begins."""

import gc
import sys
import traceback
import weakref

import pytest
import torch
from torch import nn

from memlab.devices.leftovers import clear_last_error, note

HOST, OTHER = torch.device("cpu"), torch.device("meta")


@pytest.fixture
def fail(monkeypatch):
    """Calls a function that must fail, and keeps the error as a notebook does; gives the error."""

    def run(function):
        try:
            function()
        except Exception as error:
            monkeypatch.setattr(sys, "last_value", error, raising=False)
            monkeypatch.setattr(sys, "last_traceback", error.__traceback__, raising=False)
            return error
        raise AssertionError("it did not fail")

    monkeypatch.delattr(sys, "last_exc", raising=False)
    alive.clear()
    return run


def variables(error):
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return {name: value for frame in frames for name, value in frame.f_locals.items()}


alive = []


def training(device):
    model = nn.Linear(10, 10, device=device)
    alive.append(weakref.ref(model))
    yield model(torch.ones(10, device=device)).sum()


def judged(device):
    output = torch.ones(10, 10, device=device)
    alive.append(weakref.ref(output))
    steps = training(device)
    raise ZeroDivisionError(next(steps) / output.sum())


def test_what_the_last_error_holds_is_freed(fail):
    fail(lambda: judged(HOST))
    gc.collect()
    assert all(ref() is not None for ref in alive)
    clear_last_error(HOST)
    gc.collect()
    assert all(ref() is None for ref in alive)


def test_so_is_what_the_error_before_it_holds(fail):
    def explained():
        try:
            judged(HOST)
        except ZeroDivisionError as error:
            raise ValueError("no loss") from error

    fail(explained)
    clear_last_error(HOST)
    gc.collect()
    assert all(ref() is None for ref in alive)


def test_an_error_that_holds_nothing_of_the_device_can_still_be_debugged(fail):
    error = fail(lambda: judged(HOST))
    clear_last_error(OTHER)
    assert variables(error)["output"].shape == (10, 10)


def test_no_error_at_all(monkeypatch):
    for name in ("last_exc", "last_value"):
        monkeypatch.delattr(sys, name, raising=False)
    clear_last_error(HOST)
    assert not hasattr(sys, "last_exc")
    assert not hasattr(sys, "last_value")


def test_the_names_that_hold_most_are_told(monkeypatch):
    notebook = sys.modules["__main__"]
    steps = training(HOST)
    next(steps)
    for name, value in {"small": torch.ones(1), "batches": [{"x": torch.ones(1000)}], "steps": steps}.items():
        monkeypatch.setattr(notebook, name, value, raising=False)
    monkeypatch.setattr(notebook, "model", nn.Linear(100, 100), raising=False)
    monkeypatch.setattr(notebook, "elsewhere", torch.ones(10**6, device=OTHER), raising=False)
    assert note(HOST, 2**20, "Tesla T4") == (
        "1.00 MiB of Tesla T4 were held before the run, by model (39.5 KiB), batches (3.91 KiB), steps (440 B): "
        "what is not needed any more, free with del model, batches, steps."
    )


def test_gradients_and_the_state_of_optimizers_count(monkeypatch):
    weight = nn.Parameter(torch.ones(256))
    weight.sum().backward()
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    optimizer.step()
    notebook = sys.modules["__main__"]
    monkeypatch.setattr(notebook, "weight", weight, raising=False)
    monkeypatch.setattr(notebook, "optimizer", optimizer, raising=False)
    assert "weight (2.00 KiB), optimizer (1.00 KiB)" in note(HOST, 4096, "Tesla T4")


def test_where_no_name_holds_it_that_is_said():
    assert "by nothing that has a name in the notebook" in note(torch.device("cuda", 7), 2**30, "Tesla T4")
