"""Measured runs: what train may do, how a run ends, what it leaves behind."""

import gc
import math
import warnings
from functools import partial, wraps
from inspect import signature
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn

from memlab import fit, max_batch, predict
from memlab.devices import open_device
from memlab.errors import BadTrain, BadValue
from memlab.protocol import RESERVED
from memlab.run import Run, measure, sweep
from memlab.trace import Category, Trace
from tests.device import DEVICE, counted_by_hand
from tests.waiting import wait_for


def train(device, *, batch_size=8, width=32, depth=3):
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(torch.randn(batch_size, width, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def live_storages():
    """All tensor storages that Python can reach, found without memlab, with their sizes."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # asking torch's lazy module attributes what they are warns
        storages = [thing.untyped_storage() for thing in gc.get_objects() if isinstance(thing, torch.Tensor)]
    # Symbols have no bytes: PyTorch 2.15's tracer keeps some.
    return {(one._cdata, one.nbytes()) for one in storages if isinstance(one.nbytes(), int)}


@counted_by_hand
def test_a_run_gives_a_trace_with_the_settings_and_their_defaults():
    trace = measure(train, batch_size=4, device=DEVICE)
    assert trace.source == "measured"
    assert trace.settings == {"batch_size": 4, "width": 32, "depth": 3}
    assert len(trace.steps) == 3
    assert trace.peak_reserved is None
    assert trace.oom is None
    assert trace.flops > 0


@counted_by_hand
def test_the_first_three_steps_and_every_tenth_are_xrayed():
    trace = measure(train, steps=13, device=DEVICE)
    assert [i for i, step in enumerate(trace.steps) if step.xrayed] == [0, 1, 2, 10]
    assert all((step.peak_allocated is None) is not step.xrayed for step in trace.steps)
    assert trace.seconds_per_step > 0
    assert all(step.xrayed for step in measure(train, steps=5, xray="every", device=DEVICE).steps)


@counted_by_hand
def test_an_xray_after_plain_steps_sees_what_the_one_before_it_left():
    def holding(device):
        while True:
            held = torch.ones(1000, device=device)  # while that of the step before is there
            yield held.sum()

    steps = measure(holding, steps=21, device=DEVICE).steps
    assert steps[1].peak_allocated == steps[10].peak_allocated == steps[20].peak_allocated


@counted_by_hand
def test_the_trace_shows_the_xrayed_step_with_the_highest_peak():
    def growing(device):
        for width in (10, 30, 20):
            yield torch.ones(width, device=device).sum()

    trace = measure(growing, device=DEVICE)
    assert [step.peak_allocated for step in trace.steps] == [44, 124, 84]
    assert (trace.xray_step, trace.peak_allocated) == (1, 124)


def test_runs_repeat_and_leave_the_random_state_alone():
    state = torch.get_rng_state()
    first, second = measure(train, device=DEVICE), measure(train, device=DEVICE)
    assert first.losses == second.losses
    assert first.allocated == second.allocated
    assert torch.equal(torch.get_rng_state(), state)


def test_a_train_that_ends_early_is_fine():
    def short(device):
        yield 1.0
        yield None

    assert measure(short, steps=9, device=DEVICE).losses == (1.0, None)


def test_nothing_is_left_alive():
    before = live_storages()
    measure(train, batch_size=256, device=DEVICE)
    assert live_storages() - before == set()


def test_stopping_early_closes_train_and_keeps_what_is_known():
    closed = []

    def careful(device):
        try:
            while True:
                yield torch.ones(5).sum()
        finally:
            closed.append(True)

    with Run(careful, {}, open_device(None), steps=100) as run:
        for _ in run:
            if len(run.steps) == 2:
                break
    assert closed
    assert len(run.trace().steps) == 2


# Out of memory


@counted_by_hand
def test_out_of_memory_is_a_result_that_says_what_where_and_of_how_much():
    limit = measure(train, batch_size=512, device=DEVICE).peak_allocated - 1
    trace = measure(train, batch_size=512, budget=limit, device=DEVICE)
    oom = trace.oom
    assert oom.limit == limit
    assert oom.in_use + oom.asked > limit >= trace.peak_allocated
    assert trace.steps[-1].loss is None
    assert trace.sentence.startswith(f"out of memory in {oom.phase} at ")
    assert measure(train, batch_size=512, budget=limit + 1, device=DEVICE).oom is None


@counted_by_hand
def test_weights_are_weights_even_if_forward_never_comes():
    trace = measure(train, width=64, depth=3, budget="40 KiB", device=DEVICE)
    assert trace.oom.phase == "other"
    assert trace.by_category == {"parameter": trace.peak_allocated}


@counted_by_hand
def test_state_is_state_even_if_the_first_step_never_ends():
    weights = 3 * (64 * 64 + 64) * 4  # bytes
    limit = measure(train, batch_size=1, width=64, steps=1, device=DEVICE).peak_allocated - 1
    trace = measure(train, batch_size=1, width=64, budget=limit, device=DEVICE)
    assert trace.oom.phase == "optimizer"
    assert trace.by_category["optimizer state"] >= 2 * weights


def test_a_hundred_out_of_memory_in_a_row_leave_live_bytes_where_they_started():
    measure(train, budget="20 KiB", device=DEVICE)
    before = live_storages()
    for _ in range(100):
        assert measure(train, batch_size=64, budget="40 KiB", device=DEVICE).oom
    assert live_storages() - before == set()


@counted_by_hand
def test_out_of_memory_inside_backward_frees_the_graph():
    def wide_backward(device):
        x = torch.ones(1000, requires_grad=True)
        for _ in range(3):
            (x.exp().exp() * 2).sum().backward()
            yield None

    peak = measure(wide_backward, device=DEVICE).peak_allocated
    before = live_storages()
    trace = measure(wide_backward, budget=peak - 1, device=DEVICE)
    assert trace.oom.phase == "backward"
    assert live_storages() - before == set()


@pytest.mark.parametrize("branch", [0, 1])
def test_an_error_inside_backward_frees_the_branches_that_wait(branch):
    def forked(device):
        x = torch.ones(1000, device=device, requires_grad=True) * 2
        branches = [x.sin(), x.cos()]
        branches[branch].register_hook(lambda gradient: 1 / 0)
        sum(branches).sum().backward()
        yield None

    before = live_storages()
    with pytest.raises(ZeroDivisionError):
        measure(forked, device=DEVICE)
    wait_for(lambda: live_storages() <= before)  # on a card backward has a thread of its own, which lets go later


@counted_by_hand
def test_a_train_that_survives_out_of_memory_goes_on():
    def retrying(device):
        for size in (10**6, 10):
            try:
                yield torch.ones(size).sum()
            except torch.OutOfMemoryError:
                yield None

    trace = measure(retrying, budget=1000, device=DEVICE)
    assert trace.oom is None
    assert trace.losses == (None, 10.0)


def test_out_of_memory_of_the_host_itself_is_a_result_too():
    def huge(device):
        yield torch.empty(2**55).sum()

    trace = measure(huge, device=DEVICE)
    assert trace.oom.asked == 2**57
    assert trace.oom.limit is None


# Bad input


def test_an_exception_of_train_comes_out_as_it_is_and_nothing_stays_behind():
    def broken(device):
        yield torch.ones(3).sum()
        raise KeyError("mine")

    state = torch.get_rng_state()
    with pytest.raises(KeyError, match="mine"):
        measure(broken, device=DEVICE)
    assert torch.equal(torch.get_rng_state(), state)
    assert measure(train, device=DEVICE).oom is None


@pytest.mark.parametrize(
    ("losses", "notes"),
    [
        ([1.0, 0.5, math.nan, math.nan], ("The loss is nan from step 3 of 4 on.",)),
        ([1.0, 0.5, 0.2, -math.inf], ("The loss is -inf in step 4 of 4.",)),
        ([math.inf, 0.5, math.nan, 1.0], ("The loss is inf in 2 of 4 steps, first in step 1.",)),
        ([1.0, math.nan, 1.0], ("The loss is nan in step 2 of 3.",)),
        ([1.0, None, 2.0], ()),
    ],
)
def test_a_loss_that_is_no_number_is_noted_with_its_step(losses, notes):
    def train(device):
        yield from losses

    assert measure(train, steps=9, device=DEVICE).notes == notes


def returns_a_number(device):
    return 3


def yields_never(device):
    raise AssertionError("it ran")


class WithoutYield:
    def __call__(self, device):
        raise AssertionError("it ran")


def returns_its_losses(device):
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer, losses = torch.optim.SGD([weight]), []
    for _ in count():  # as over endless batches
        losses.append((weight * weight).sum())
        losses[-1].backward()
        optimizer.step()
    return losses


def yields_nothing(device):
    yield from ()


def yields_a_matrix(device):
    yield torch.ones(2, 3)


def yields_text(device):
    yield "loss"


def takes_nothing():
    yield 1


def takes_by_place(device, batch_size, /):
    yield None


def takes_keywords_only(*, device):
    yield 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (returns_a_number, "returned an int, not a generator"),
        (yields_never, "yields_never has no 'yield': write 'yield loss'"),
        (partial(yields_never), "partial has no 'yield'"),
        (WithoutYield(), "WithoutYield has no 'yield'"),
        (returns_its_losses, "returns_its_losses trains before it has yielded: write 'yield loss'"),
        (yields_nothing, "yielded nothing"),
        (yields_a_matrix, r"yielded a tensor of shape \(2, 3\)"),
        (yields_text, "yielded a str"),
        (takes_nothing, "takes no device"),
        (takes_keywords_only, "takes no device"),
        (takes_by_place, "takes 'batch_size' by its place alone: remove the '/'"),
        (3, "3 is not a function"),
    ],
)
def test_a_train_that_breaks_the_protocol_is_told_how_to_keep_it(bad, words):
    with pytest.raises(BadTrain, match=words) as refusal:
        measure(bad, device=DEVICE)
    assert ": " in str(refusal.value)


def yields_one(device):
    yield 1.0


@wraps(yields_one)
def wrapper(*args, **settings):
    return yields_one(*args, **settings)


class Yields:
    def __call__(self, device):
        yield 1.0

    def method(self, device):
        yield 1.0


def either(device):
    return None or yields_one(device)


@pytest.mark.parametrize(
    "good",
    [
        partial(partial(yields_one)),
        wrapper,
        Yields(),
        Yields().method,
        lambda device: yields_one(device),
        partial(lambda device: wrapper(device)),
        either,
    ],
)
def test_whatever_gives_a_generator_is_one(good):
    assert measure(good, steps=1, device=DEVICE).losses == (1.0,)


def needs_a_width(device, *, width):
    yield float(width)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: measure(train, batchsize=4), "no setting 'batchsize': its settings are batch_size, width, depth"),
        (lambda: measure(needs_a_width), "needs a value for 'width'"),
        (lambda: measure(train, steps=0), "steps=0 .* whole number from 1"),
        (lambda: measure(train, steps=2.5), "steps=2.5"),
        (lambda: measure(train, xray="never"), "'never' .* 'auto'"),
        (lambda: measure(train, budget="lots"), "'lots' is not a number of bytes"),
        (lambda: measure(train, budget=-1), "-1 is not a number of bytes"),
        (lambda: measure(train, device="gpu0"), "'gpu0' is not a device"),
        (lambda: measure(train, device="meta"), "'meta' cannot be measured"),
        (lambda: measure(train, device="cuda:99"), "'cuda:99' is not here"),
    ],
)
def test_a_bad_value_is_named_with_what_is_legal(call, words):
    with pytest.raises(BadValue, match=words):
        call()


@pytest.mark.parametrize("budget", ["15 GB", "15GiB", 16106127360])
def test_budgets_are_read_as_people_write_them(budget):
    assert measure(train, budget=budget, device=DEVICE).oom is None


def test_a_train_that_takes_any_setting_gets_any():
    def open_ended(device, **settings):
        yield float(settings["anything"])

    assert measure(open_ended, anything=3, device=DEVICE).losses == (3.0,)


def test_settings_that_json_lacks_are_kept_as_text():
    def typed(device, *, dtype=torch.float32):
        yield 0.0

    assert measure(typed, device=DEVICE).settings == {"dtype": "torch.float32"}


def test_a_sweep_runs_every_combination_of_its_lists():
    traces = sweep(train, width=[16, 32], depth=[1, 2], batch_size=4, device=DEVICE)
    assert [(t.settings["width"], t.settings["depth"]) for t in traces] == [(16, 1), (16, 2), (32, 1), (32, 2)]
    assert traces[0].peak_allocated < traces[-1].peak_allocated


def test_a_setting_that_is_no_number_survives_json():
    def odd(device, *, lr=float("nan"), limit=float("inf")):
        yield 0.0

    trace = measure(odd, device=DEVICE)
    assert trace.settings == {"lr": "nan", "limit": "inf"}
    assert Trace.from_json(trace.to_json()) == trace


def test_losses_may_be_numbers_of_numpy():
    def with_numpy(device):
        yield np.float32(1.5)
        yield np.int64(2)
        yield np.array(2.5)
        yield torch.tensor(3.0).numpy()

    assert measure(with_numpy, device=DEVICE, steps=4).losses == (1.5, 2.0, 2.5, 3.0)


def test_lazy_modules_get_their_bytes_when_they_first_run():
    def lazy(device):
        model = torch.nn.Sequential(torch.nn.LazyLinear(16, bias=False), torch.nn.LazyBatchNorm1d()).to(device)
        optimizer = None
        while True:
            loss = model(torch.ones(4, 8, device=device)).sum()
            optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
            loss.backward()
            yield loss
            optimizer.step()
            optimizer.zero_grad()

    trace = measure(lazy, device=DEVICE, xray="every")
    weights = 4 * (8 * 16 + 2 * 16)
    assert trace.start[Category.PARAMETER] == weights
    assert trace.start[Category.GRADIENT] == weights
    assert trace.start[Category.BUFFER] == 4 * 2 * 16 + 8


def wrapping(device):
    weight = torch.nn.Parameter(torch.ones(4, device=device))
    while True:
        try:
            loss = (weight * torch.zeros(2**20, 4, device=device)).sum()
        except RuntimeError as error:
            raise RuntimeError("a stage failed to run forward") from error
        loss.backward()
        yield loss


def test_out_of_memory_is_a_result_too_where_another_error_was_raised_from_it():
    trace = measure(wrapping, device="cpu", budget="1 MiB")
    assert trace.oom is not None
    assert trace.oom.asked == 2**24
    assert "stage" not in trace.oom.message


def test_no_setting_of_a_loop_can_be_meant_where_memlab_takes_the_argument():
    for function in (measure, predict, sweep, fit, max_batch):
        own = {name for name, it in signature(function).parameters.items() if it.kind is it.KEYWORD_ONLY}
        assert own <= RESERVED
