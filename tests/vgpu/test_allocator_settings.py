"""The allocator's settings are read when the card is first used, and followed when they change on the way."""

import os

import pytest

from memlab import predict
from tests.vgpu.allocator_settings import EXPANDABLE, SEEN, VARIABLE, found


@pytest.fixture(autouse=True)
def _without_settings(monkeypatch):
    for name in ("PYTORCH_ALLOC_CONF", VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("case", SEEN)
def test_the_card_holds_what_it_holds_in_pytorch(case):
    held = []

    def train(device):
        held[:] = found(case)
        yield 0.0

    predict(train)
    assert held == SEEN[case]


def test_what_a_loop_sets_is_gone_with_it(monkeypatch):
    monkeypatch.setenv("MEMLAB_TEST_CHANGED", "before")
    monkeypatch.setenv("MEMLAB_TEST_REMOVED", "before")
    before = dict(os.environ)

    def train(device):
        os.environ |= {VARIABLE: EXPANDABLE, "MEMLAB_TEST_CHANGED": "after"}
        del os.environ["MEMLAB_TEST_REMOVED"]
        yield 0.0

    predict(train)
    assert dict(os.environ) == before
