"""The device is registered once in a process, whichever thread is first, and a failure can be tried again."""

import os
import subprocess
import sys

import pytest
import torch

THREADS = """
import sys, threading
sys.setswitchinterval(1e-6)
import torch
from memlab import measure, predict
from memlab.errors import MemlabError

def train(device):
    model = torch.nn.Linear(4, 4).to(device)
    with torch.autocast("cuda"):
        yield model(torch.ones(2, 4, device=device)).sum()

barrier, found = threading.Barrier(4), []

def run():
    barrier.wait()
    try:
        found.append(predict(train, steps=1).peak_allocated)
    except BaseException as error:
        found.append(f"{type(error).__name__}: {error}")

threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
found.append(predict(train, steps=1).peak_allocated)
print(*sorted(set(map(str, found))), sep="\\n")
"""

# Predicts a backward pass, and tells which threads PyTorch's autograd has started for cards.
AUTOGRAD = """
import pathlib, torch
from memlab import predict

def train(device):
    torch.ones(2, device=device, requires_grad=True).sum().backward()
    yield None

predict(train)
names = [(task / "comm").read_text() for task in pathlib.Path("/proc/self/task").iterdir()]
print([name for name in names if "autograd" in name])
"""

ONE_FAILURE = """
import torch
from memlab import predict
from memlab.vgpu import assembly
from memlab.errors import NoVirtualGpu

def train(device):
    yield torch.ones(2, device=device).sum()

real, calls = assembly.composites.kernels, []

def kernels():
    calls.append(1)
    if len(calls) == 1:
        raise NoVirtualGpu("not this time")
    return real()

assembly.composites.kernels = kernels
for _ in range(3):
    try:
        print(predict(train, steps=1).peak_allocated)
    except NoVirtualGpu as error:
        print(error)
print(len(calls))
"""


def printed(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("attempt", range(3))
def test_several_threads_predict_first(attempt):
    (peak,) = printed(THREADS)
    assert peak.isdecimal()


@pytest.mark.skipif(
    not os.path.exists("/proc/self/task") or torch.cuda.is_available(), reason="asks Linux; cards have some"
)
def test_a_cuda_build_without_a_card_goes_on_to_know_that_it_has_none():
    assert printed(AUTOGRAD) == ["[]"]


def test_a_failure_half_way_leaves_no_false_message():
    assert printed(ONE_FAILURE) == ["not this time", "1024", "1024", "2"]
