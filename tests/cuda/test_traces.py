"""Traces of real GPUs, asked of PyTorch's allocator on the stand-in: it must take as much from the driver."""

import gzip
import json
import os

import pytest
import torch

from memlab.devices import Cuda
from tests.allocator.test_real_traces import FOLDER

COLD = sorted(FOLDER.glob("cold_*.json.gz"))  # recorded from an empty card on
pytestmark = [
    pytest.mark.skipif("STANDIN_CARD" not in os.environ, reason="needs the stand-in's card: make test-cuda"),
    pytest.mark.skipif(not COLD, reason=f"no traces in {FOLDER}: set MEMLAB_TRACES to the folder that has them"),
]


def peaks(trace):
    """The most bytes reserved, and allocated at the end and reserved then, as the GPU had them."""
    reserved = most = 0
    for kind, _, size, _ in trace["events"]:
        name = trace["kinds"][kind]
        reserved += {"segment_alloc": size, "segment_free": -size}.get(name, 0)
        most = max(most, reserved)
    return most, trace["end"]["allocated"], trace["end"]["reserved"]


def replayed(trace):
    """The same of PyTorch's allocator, which is asked for the same bytes in the same order."""
    Cuda(torch.device("cuda")).release()  # what tests before this one left, cuBLAS's workspaces among it
    torch.cuda.reset_peak_memory_stats()
    live = {}
    for kind, address, size, _ in trace["events"]:
        name = trace["kinds"][kind]
        if name == "alloc":
            live[address] = torch.cuda.caching_allocator_alloc(size)
        elif name == "free":
            torch.cuda.caching_allocator_delete(live.pop(address))
    found = torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for pointer in live.values():
        torch.cuda.caching_allocator_delete(pointer)
    torch.cuda.empty_cache()
    return found


@pytest.mark.parametrize("path", COLD or [None], ids=lambda path: path.stem if path else "none")
def test_the_allocator_takes_from_the_driver_what_it_took_on_the_gpu(path):
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert replayed(trace) == peaks(trace)
