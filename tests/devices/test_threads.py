"""How PyTorch's threads wait for each other: in processes of their own, for it holds as long as a process lives."""

import os
import subprocess
import sys

import pytest

from memlab.cluster.size import cores

BUSY = """
import time
import torch
from memlab import measure

def train(device):
    yield (torch.ones(2**17, requires_grad=True) * 2).sum()

measure(train, steps=1, device="cpu")
shared_out = torch.ones(2**17)
for step in range(100):
    if step == 20:
        began, worked = time.perf_counter(), time.process_time()
    shared_out.add_(1)
    time.sleep(0.002)
print((time.process_time() - worked) / (time.perf_counter() - began), torch.get_num_threads())
"""


def cores_at_work(**environment: str) -> tuple[float, int]:
    """Cores that PyTorch keeps busy while it does next to nothing, and how many threads it computes with."""
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    told = clean | {"OMP_NUM_THREADS": str(cores())} | environment
    done = subprocess.run([sys.executable, "-c", BUSY], env=told, capture_output=True, text=True, check=True)
    share, threads = done.stdout.split()
    return float(share), int(threads)


@pytest.mark.skipif(sys.platform != "linux" or cores() < 2, reason="one core has nobody to wait for")
def test_after_a_run_threads_that_wait_hold_no_core_and_are_as_many_as_before():
    share, threads = cores_at_work()
    assert share < 0.2
    assert threads == cores()


@pytest.mark.skipif(sys.platform != "linux" or cores() < 2, reason="one core has nobody to wait for")
def test_what_the_environment_says_of_waiting_holds():
    assert cores_at_work(OMP_WAIT_POLICY="active")[0] > 0.5


def test_one_thread_has_nobody_to_wait_for_and_gets_no_company():
    told = os.environ | {"OMP_NUM_THREADS": "1"}
    names = "import threading; print([thread.name for thread in threading.enumerate()])"
    done = subprocess.run([sys.executable, "-c", BUSY + names], env=told, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "['MainThread']"
