"""The waiting of PyTorch's threads: in processes of their own, because the policy holds as long as a process lives.

The gain in speed is measured in the benchmarks (``tests/bench/threads.py``).
"""

import os
import subprocess
import sys

import pytest

from memlab.cluster.size import cores

MEASURED = """
import threading
import torch
from memlab import measure

def train(device):
    yield (torch.ones(2**17, requires_grad=True) * 2).sum()

before = torch.get_num_threads()
measure(train, steps=1, device="cpu")
print(before == torch.get_num_threads(), [thread.name for thread in threading.enumerate()])
"""


def after_a_run(**environment: str) -> str:
    """Return, as text, whether PyTorch has as many threads as before, and the names of Python's."""
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    told = clean | {"OMP_NUM_THREADS": str(cores())} | environment
    done = subprocess.run([sys.executable, "-c", MEASURED], env=told, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux" or cores() < 2, reason="one core has nobody to wait for")
def test_after_a_run_threads_that_wait_sleep_and_are_as_many_as_before():
    assert after_a_run() == "True ['MainThread', 'memlab idle team']"


@pytest.mark.skipif(sys.platform != "linux" or cores() < 2, reason="one core has nobody to wait for")
def test_what_the_environment_says_of_waiting_holds():
    assert after_a_run(OMP_WAIT_POLICY="active") == "True ['MainThread']"


def test_one_thread_has_nobody_to_wait_for_and_gets_no_company():
    assert after_a_run(OMP_NUM_THREADS="1") == "True ['MainThread']"
