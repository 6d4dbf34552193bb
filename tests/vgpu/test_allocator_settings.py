"""The allocator's settings are read when the card is first used, and followed when they change on the way."""

import os

import pytest
import torch

from memlab import predict
from tests.vgpu.allocator_settings import EXPANDABLE, SEEN, VARIABLE, found


@pytest.fixture(autouse=True)
def _without_settings(monkeypatch):
    for name in ("PYTORCH_ALLOC_CONF", VARIABLE):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)


@pytest.mark.parametrize("case", SEEN)
def test_the_card_holds_what_it_holds_in_pytorch(case):
    held = []

    def train(device):
        held[:] = found(case)
        yield 0.0

    predict(train)
    assert held == SEEN[case]


def test_the_environment_is_the_process_s_own_and_another_thread_s_settings_stay():
    """A panel predicts in a thread of its own while a reader's cell changes the environment."""

    def train(device):
        torch.empty(1, device=device)
        os.environ[VARIABLE] = EXPANDABLE  # as another thread might
        yield torch.zeros(())

    predict(train)
    assert os.environ[VARIABLE] == EXPANDABLE
