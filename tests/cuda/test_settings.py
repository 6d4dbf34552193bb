"""Settings that a program gives the allocator by itself, in PyTorch's CUDA build on the stand-in."""

import json
import os
import subprocess
import sys

import pytest

from tests.vgpu.allocator_settings import SEEN

pytestmark = pytest.mark.skipif("STANDIN_CARD" not in os.environ, reason="needs the stand-in's card: make test-cuda")


@pytest.mark.parametrize("case", SEEN)
def test_what_was_seen_is_what_pytorch_holds(case):
    command = [sys.executable, "-m", "tests.vgpu.allocator_settings", case]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SEEN[case]
