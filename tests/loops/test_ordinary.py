"""Ordinary loops, each run twice in one process: nothing crashes, hangs, or changes what was there before."""

import math
import re
import signal
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.errors import MemlabError
from memlab.trace import Category
from tests.loops import ordinary
from tests.loops.before import snapshot
from tests.loops.ordinary.catalogue import CHOSEN, LOOPS

pytestmark = pytest.mark.slow

SECONDS = 120  # for a loop that takes a few, were the machine not busy

MODULES = "|".join(path.stem for path in Path(ordinary.__file__).parent.glob("*.py"))

everywhere = [loop for loop in LOOPS if not loop.cuda_only]
comparable = [loop for loop in everywhere if not (loop.differs or loop.refused)]


def each(loops):
    return pytest.mark.parametrize("loop", loops, ids=[loop.name for loop in loops])


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ring(*_):
    raise TimeoutError(f"no end within {SECONDS} seconds")


@contextmanager
def bounded(loop):
    """A hang is a failure, and so is every warning but the one that PyTorch gives to such a loop anyway."""
    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            if loop.warns:
                warnings.filterwarnings("ignore", loop.warns)
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def made(loop):
    """``train`` and what a reader made before it, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return loop.made()


def predicted(loop, train):
    with bounded(loop):
        return predict(train, gpu="T4", **loop.settings)


def measured(loop, train):
    with bounded(loop):
        return measure(train, device="cpu", xray="every", **loop.settings)


def peaks(trace):
    return [step.peak_allocated for step in trace.steps], trace.peak_reserved, trace.by_category


def without_workspace(trace):
    """Return the bytes of tensors at the peak: the CPU has no allocator that would round, and no cuBLAS."""
    held = (
        sum(values[moment] for category, values in trace.timeline.items() if category is not Category.WORKSPACE)
        for moment in range(len(trace.allocated))
    )
    return max(held)


@each([loop for loop in LOOPS if not loop.refused])
def test_predicted_twice(loop):
    train, outside = made(loop)
    before = snapshot(outside)
    first = predicted(loop, train)
    assert snapshot(outside) == before
    second = predicted(loop, train)
    assert snapshot(outside) == before
    assert first.peak_allocated > 0
    assert peaks(first) == peaks(second)


@each([loop for loop in LOOPS if loop.refused])
def test_refused_in_one_sentence(loop):
    train, outside = made(loop)
    before = snapshot(outside)
    for _ in range(2):
        with pytest.raises(MemlabError, match=re.escape(loop.refused)) as refusal:
            predicted(loop, train)
        assert re.fullmatch(rf"[^\n]*\b({MODULES})\.py:\d+[^\n]*\.", str(refusal.value))
        assert snapshot(outside) == before


@each(everywhere)
def test_measured_twice(loop):
    first, second = (measured(loop, made(loop)[0]) for _ in range(2))
    assert len(first.losses) == len(second.losses) > 0
    assert all(math.isfinite(loss) for loss in first.losses)
    assert first.losses == second.losses
    assert peaks(first) == peaks(second)


@each(comparable)
def test_predicted_and_measured_agree(loop):
    ours, theirs = predicted(loop, made(loop)[0]), measured(loop, made(loop)[0])
    assert without_workspace(ours) == pytest.approx(theirs.peak_allocated, rel=0.005)


@each([loop for loop in LOOPS if loop.differs == CHOSEN])
def test_where_it_is_not_known_how_much_is_chosen_the_prediction_is_a_lower_bound(loop):
    ours, theirs = predicted(loop, made(loop)[0]), measured(loop, made(loop)[0])
    assert ours.is_lower_bound
    assert ours.sentence.startswith("peak at least ")
    kept = [max(trace.timeline[Category.ACTIVATION]) for trace in (ours, theirs)]
    assert 0 < kept[0] <= kept[1]
    assert not theirs.is_lower_bound


def test_hooks_registered_after_a_prediction_are_called():
    model, called = nn.Linear(4, 4), []

    def train(device):
        model.to(device)
        model.weight.register_hook(lambda gradient: None)
        for _ in range(2):
            loss = model(torch.ones(2, 4, device=device)).sum()
            loss.backward()
            yield loss

    predict(train)
    model.weight.register_hook(lambda gradient: called.append("gradient"))
    model.weight.register_post_accumulate_grad_hook(lambda parameter: called.append("accumulated"))
    model(torch.ones(2, 4)).sum().backward()
    assert called == ["gradient", "accumulated"]
