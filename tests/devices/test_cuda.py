"""The CUDA card against a counted stand-in: torch.cuda's counters and settings, without a card."""

import math
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memlab import devices
from memlab.devices import Cpu, Cuda, open_device
from memlab.devices.cuda import _fraction
from memlab.run import Run
from memlab.trace import Category
from memlab.tracking import Tracker

TOTAL = 15633680957  # bytes: a T4's, an odd number


class Card:
    """A caching allocator that counts, and notes what it is told. Blocks of tensors it does not know are ``held``."""

    def __init__(self):
        self.tensors = 0  # bytes of tensors, told by a test
        self.held = self.reserved = self.peak = self.peak_reserved = 0
        self.reads = self.resets = self.waits = 0
        self.fractions, self.current = [], []

    def move(self, *, held=None, reserved=None):
        """Change what is allocated or reserved."""
        self.held = self.held if held is None else held
        self.reserved = self.reserved if reserved is None else reserved
        self.peak = max(self.peak, self.held)
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def stats(self, device=None):
        self.reads += 1
        return {
            "allocated_bytes": {"all": {"current": self.held, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": self.reserved, "peak": self.peak_reserved}},
        }

    def reset(self, device=None):
        self.resets += 1
        self.peak, self.peak_reserved = self.held, self.reserved

    @contextmanager
    def as_current(self, device):
        self.current.append(device)
        yield


@pytest.fixture
def card(monkeypatch):
    card = Card()
    properties = SimpleNamespace(total_memory=TOTAL, major=7, minor=5, multi_processor_count=40)

    def wait(device):
        card.waits += 1

    for name, fake in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 0,
        "device": card.as_current,
        "get_device_name": lambda device: "Tesla T4",
        "get_device_properties": lambda device: properties,
        "memory_stats_as_nested_dict": card.stats,
        "reset_peak_memory_stats": card.reset,
        "memory_allocated": lambda device: card.held,
        "max_memory_allocated": lambda device: card.peak,
        "max_memory_reserved": lambda device: card.peak_reserved,
        "set_per_process_memory_fraction": lambda fraction, device: card.fractions.append(fraction),
        "get_per_process_memory_fraction": lambda device: card.fractions[-1] if card.fractions else 1.0,
        "synchronize": wait,
        "get_rng_state": lambda device: None,
        "set_rng_state": lambda state, device: None,
        "manual_seed": lambda seed: None,
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92000)
    monkeypatch.setattr(devices.cuda, "clear_cublas_workspaces", lambda: None)
    return card


def test_the_card_that_is_named_is_the_one_in_use(card):
    device = open_device("cuda:1")
    assert (device.device, device.name) == (torch.device("cuda", 1), "Tesla T4")
    with device.running():
        pass
    assert card.current == [torch.device("cuda", 1)]
    assert open_device(None).device == torch.device("cuda", 0)


@given(budget=st.integers(1, TOTAL))
def test_a_budget_allows_every_byte_of_it(budget):
    fraction = _fraction(budget, TOTAL)
    assert int(fraction * TOTAL) >= budget  # as the allocator cuts it off
    assert int(math.nextafter(fraction, 0.0) * TOTAL) < budget or fraction == budget / TOTAL


def test_a_budget_is_set_and_taken_back(card):
    device = Cuda(torch.device("cuda:0"))
    device.set_budget(None)
    assert card.fractions == []  # PyTorch would say "... allowed" from then on
    device.set_budget(2 * TOTAL)
    device.set_budget(TOTAL // 2)
    device.set_budget(None)
    assert int(card.fractions[1] * TOTAL) == TOTAL // 2
    assert card.fractions[::2] == [1.0, 1.0]


def test_peaks_are_of_the_step_whoever_resets_the_counters_within_it(card):
    device = Cuda(torch.device("cuda:0"))
    device.start_step()
    card.move(held=500, reserved=2000)
    card.move(held=100, reserved=1000)
    assert device.read_and_reset_peak() == (100, 500, 1000)
    card.move(held=300)
    assert device.read_and_reset_peak() == (300, 300, 1000)
    assert (device.peak_allocated(), device.peak_reserved()) == (500, 2000)
    device.start_step()
    assert (device.peak_allocated(), device.peak_reserved()) == (300, 1000)


def test_a_peak_that_was_there_already_is_not_told_again(card):
    device = Cuda(torch.device("cuda:0"))
    card.move(held=500)
    device.read_and_reset_peak()
    card.move(held=100)  # freed since
    card.move(held=200)
    assert device.read_and_reset_peak()[:2] == (200, 200)


class OnTheHost(Cuda):
    """The stand-in's card, with its tensors on the CPU."""

    def __init__(self):
        super().__init__(torch.device("cuda:0"))
        self.device = torch.device("cpu")

    def running(self):
        return nullcontext()


def test_a_run_waits_for_the_card_and_tells_what_was_there_before(card):
    card.move(held=7000, reserved=10_000)

    def train(device):
        while True:
            yield None

    run = Run(train, {}, OnTheHost(), steps=4, budget="1 GiB")
    trace = run.complete()
    assert card.waits == 4
    assert trace.start == {Category.HELD: 7000}
    assert trace.peak_reserved == 10_000
    assert [step.peak_allocated for step in trace.steps] == [7000] * 4
    assert (card.fractions[0] * TOTAL, card.fractions[-1]) == (pytest.approx(2**30), 1.0)


def test_a_card_that_is_not_empty_is_told(card):
    card.move(held=TOTAL // 2)

    def train(device):
        yield None

    (note,) = Run(train, {}, OnTheHost(), steps=1).complete().notes
    assert note.startswith("7.28 GiB of Tesla T4 were held before the run, by ")
    card.move(held=TOTAL // 200)
    assert Run(train, {}, OnTheHost(), steps=1).complete().notes == ()


def test_an_allocation_that_no_tensor_explains_is_workspace(card):
    device = OnTheHost()
    tracker = device.tracker(None)
    assert isinstance(tracker, Tracker)
    with tracker:
        card.move(held=4096 + 512)  # a library's, and the tensor's block
        x = torch.zeros(100)
    events = tracker.xray().events
    assert [event.bytes for event in events if event.category is Category.WORKSPACE] == [4096 + 512 - 400]
    del x


def test_a_card_and_the_cpu_compute():
    assert Cuda(torch.device("cuda:0")).computes
    assert Cpu().computes
