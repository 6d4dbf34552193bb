"""Traces of real GPUs, replayed on the simulated allocator: every address, every segment.

The traces are gzipped JSON, recorded with ``torch.cuda.memory._record_memory_history``; they stand in
the folder that MEMLAB_TRACES names, by default ``../shared/traces``.
"""

import gzip
import json
import os
from pathlib import Path

import pytest

from memlab.allocator import CachingAllocator, Settings

FOLDER = Path(os.environ.get("MEMLAB_TRACES") or Path(__file__).parents[3] / "shared" / "traces")
TRACES = sorted(FOLDER.glob("*.json.gz"))


def replay(trace: dict) -> tuple[CachingAllocator, list[str]]:
    """The allocator after all of the trace, and where it did something else than the GPU."""
    placed: list[tuple[int, int]] = []  # the segments that the trace has and the allocator has not asked for yet
    wrong: list[str] = []

    def place(size: int) -> int:
        if not placed:
            wrong.append(f"a segment of {size} bytes that the GPU did not need")
            return 2**60 + len(wrong) * 2**40
        address, recorded = placed.pop()
        if size != recorded:
            wrong.append(f"a segment of {size} bytes where the GPU took {recorded}")
        return address

    allocator = CachingAllocator(place=place, settings=Settings(older_first=False))  # recorded before torch 2.13
    for address, size, pool in trace["start"]["segments"]:
        allocator.add_segment(address, size, pool == "small")
    live = {address: allocator.carve(address, size) for address, size in trace["start"]["blocks"]}
    for kind, address, size, _ in trace["events"]:
        name = trace["kinds"][kind]
        if name == "segment_alloc":
            placed.append((address, size))
        elif name == "segment_free":
            allocator.release_segment(allocator.segments[address])
        elif name == "free":
            allocator.release(live.pop(address))
        else:
            block = live[address] = allocator.allocate(size)
            if block.address != address or placed:
                wrong.append(f"{size} bytes at {block.address}, on the GPU at {address}")
    return allocator, wrong


@pytest.mark.skipif(not TRACES, reason=f"no traces in {FOLDER}: set MEMLAB_TRACES to the folder that has them")
@pytest.mark.parametrize("path", TRACES or [None], ids=lambda path: path.stem if path else "none")
def test_every_allocation_lands_where_the_gpu_put_it(path):
    trace = json.loads(gzip.decompress(path.read_bytes()))
    allocator, wrong = replay(trace)
    assert wrong == []
    assert allocator.reserved == trace["end"]["reserved"]
    assert allocator.allocated == trace["end"]["allocated"]


SMALL = {
    "kinds": ["alloc", "free", "segment_alloc", "segment_free"],
    "start": {"segments": [], "blocks": []},
    "events": [[2, 0, 2 * 2**20, -1], [0, 0, 512, 0], [0, 512, 512, 0], [1, 0, 512, -1]],
}


def test_a_replay_that_goes_wrong_is_noticed():
    assert replay(SMALL)[1] == []
    moved = SMALL | {"events": [*SMALL["events"][:2], [0, 1024, 512, 0]]}
    assert replay(moved)[1] == ["512 bytes at 512, on the GPU at 1024"]
    larger = SMALL | {"events": [[2, 0, 4 * 2**20, -1], [0, 0, 512, 0]]}
    assert replay(larger)[1] == ["a segment of 2097152 bytes where the GPU took 4194304"]
    absent = SMALL | {"events": [[0, 0, 512, 0]]}
    assert "that the GPU did not need" in replay(absent)[1][0]
