"""The device of tests that measure: the CPU, or the one in MEMLAB_TEST_DEVICE (`make test-cuda`: cuda)."""

import os

import pytest

DEVICE = os.environ.get("MEMLAB_TEST_DEVICE", "cpu")

counted_by_hand = pytest.mark.skipif(
    DEVICE != "cpu",
    reason="counts the bytes of tensors, or reads numbers: a card has blocks and workspaces beside them",
)
