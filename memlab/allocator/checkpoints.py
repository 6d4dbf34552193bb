"""The state of a private pool, to go on from it later: as CUDA graphs that are replayed left it.

As ``getCheckpointState`` and ``setCheckpointPoolState`` of ``c10/cuda/CUDACachingAllocator.cpp`` have it.
"""

from dataclasses import dataclass

from memlab.allocator.blocks import Block, Segment
from memlab.allocator.caching import CachingAllocator


@dataclass(frozen=True)
class Checkpoint:
    """A state of a private pool of graphs: the blocks of each segment, as address, bytes, and True if it was free."""

    graphs: int
    segments: tuple[tuple[tuple[int, int, bool], ...], ...]


def checkpoint(allocator: CachingAllocator, graphs: int) -> Checkpoint:
    """The state of a pool now. Segments that begin with a block in use come first, as they do there."""
    mine = [segment for segment in allocator.segments.values() if segment.graphs == graphs]
    mine.sort(key=lambda segment: (segment.first.free, not segment.small, segment.first.size))
    return Checkpoint(graphs, tuple(map(_blocks_of, mine)))


def restore(allocator: CachingAllocator, known: Checkpoint) -> dict[int, Block]:
    """Put a pool back into a state; the blocks in use then, by address. Those in use now are freed.

    All of a segment is allocated before what was free in it is freed again, which counts for the peak.
    """
    for block in allocator.used_by(known.graphs):
        allocator.release(block)
    used: dict[int, Block] = {}
    for blocks in known.segments:
        taken = [(allocator.carve(address, size), free) for address, size, free in blocks]
        for block, free in taken:
            if free:
                allocator.release(block)
            else:
                used[block.address] = block
    return used


def _blocks_of(segment: Segment) -> tuple[tuple[int, int, bool], ...]:
    return tuple((block.address, block.size, block.free) for block in segment.blocks() if block.mapped)
