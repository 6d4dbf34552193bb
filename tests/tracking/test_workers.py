"""A DataLoader's worker processes, forked within a step: what they do is their own."""

import multiprocessing

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.data import DataLoader, Dataset

from memlab import measure, predict
from memlab.tracking import Tracker

forked = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
CPU = torch.device("cpu")


class Drawn(Dataset):
    """Random pictures, changed by a module, and how many modes were on while one was made."""

    def __init__(self):
        self.change = nn.Conv2d(3, 3, 1)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        with torch.no_grad():
            picture = self.change(torch.ones(3, 32, 32) * index)
        return picture, torch.tensor(len(_get_current_dispatch_mode_stack()))


def loader(workers: int = 2) -> DataLoader:
    return DataLoader(Drawn(), 4, num_workers=workers, multiprocessing_context="fork" if workers else None)


def train(device, *, workers=2):
    model = nn.Linear(32, 32).to(device)
    for pictures, modes in loader(workers):
        assert modes.sum() == 0 or not workers
        loss = model(pictures.to(device)).square().mean()
        loss.backward()
        model.zero_grad()
        yield loss


@forked
def test_they_are_not_watched():
    with Tracker(CPU):
        pictures, modes = next(iter(loader()))
    assert modes.tolist() == [0, 0, 0, 0]
    assert pictures[3].abs().sum() > 0


@forked
def test_a_card_is_not_asked_for_its_counters_there():
    class Counters:
        """As CUDA's are in a forked process: not to be had."""

        def __init__(self):
            self.process = multiprocessing.current_process().name

        def read_and_reset_peak(self):
            if multiprocessing.current_process().name != self.process:
                raise KeyError("allocated_bytes")
            return 0, 0, 0

    with Tracker(CPU, allocator=Counters()):
        pictures, _ = next(iter(loader()))
    assert pictures.shape == (4, 3, 32, 32)


@forked
def test_a_prediction_takes_what_they_draw():
    with_workers, without = predict(train), predict(train, workers=0)
    assert with_workers.peak_allocated == without.peak_allocated


@forked
def test_the_losses_are_those_of_one_process():
    torch.manual_seed(0)
    assert measure(train, xray="every").losses == measure(train, workers=0).losses
