"""The CUDA caching allocator, simulated: where each allocation lands, what is reserved, what runs out.

The rules are those of PyTorch's ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.h``;
the comments number them. ``tests/test_real_traces.py`` holds them to what real GPUs allocated.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from memlab.units import MIB

ROUND = 512
SMALL_LIMIT = MIB  # up to here an allocation is small, and so much must remain for a large block to be split
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_LIMIT = 10 * MIB  # from here on an allocation gets a segment of its own size
SEGMENT_ROUND = 2 * MIB


class OutOfRoom(Exception):
    """No block, no room for a new segment, and nothing left to release."""

    def __init__(self, asked: int):
        super().__init__(asked)
        self.asked = asked


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of a segment, in use or free, between its neighbours. Sizes and addresses in bytes."""

    address: int
    size: int
    segment: "Segment"
    free: bool = True
    before: "Block | None" = None
    after: "Block | None" = None


@dataclass(eq=False, slots=True)
class Segment:
    """What the driver gave in one piece. ``small`` says which pool it serves."""

    address: int
    size: int
    small: bool
    first: Block = field(init=False)

    def __post_init__(self) -> None:
        self.first = Block(self.address, self.size, self)

    @property
    def unsplit(self) -> bool:
        """Whether the whole segment is one free block."""
        return self.first.free and self.first.after is None

    def blocks(self) -> Iterator[Block]:
        """Its blocks, by address."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.after


class CachingAllocator:
    """Blocks are cut from cached segments, merged when freed, and given back to the driver only in need.

    Args:
        limit: the most bytes that may be reserved, None for no limit.
        place: gives the address of a new segment of so many bytes; by default one after the other.

    Attributes:
        allocated, reserved: bytes in live blocks; bytes held from the driver.
        peak_allocated, peak_reserved: the most of each so far.
        segments: what is held from the driver, by address.
    """

    def __init__(self, *, limit: int | None = None, place: Callable[[int], int] | None = None):
        self.limit = limit
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.segments: dict[int, Segment] = {}
        self._place = place or self._after_the_last
        self._end = 0
        # Free blocks of each pool as (size, address), sorted: the first that is large enough fits best.
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[int, Block] = {}

    def allocate(self, asked: int) -> Block | None:
        """A block of at least ``asked`` bytes; None for 0 bytes, which allocate nothing.

        Raises:
            OutOfRoom: when the limit leaves no room, even after all that is cached has been released.
        """
        if asked == 0:
            return None
        size = rounded(asked)  # rule 1
        block = self._best_fit(size) or self._new_segment(size)
        self._take(block)
        if _worth_splitting(block, size):  # rule 5
            self._split(block, size)
        block.free = False
        # Rule 6: the block counts, which may be larger than what was asked for.
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def release(self, block: Block) -> None:
        """Free a block; it merges with free neighbours, and its segment stays reserved (rule 7)."""
        self.allocated -= block.size
        block.free = True
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._take(neighbour)
                block = self._merge(*sorted((block, neighbour), key=lambda part: part.address))
        self._put(block)

    def empty_cache(self) -> int:
        """Give back every segment that is one free block; the bytes given back."""
        released = [segment for segment in self.segments.values() if segment.unsplit]
        for segment in released:
            self.release_segment(segment)
        return sum(segment.size for segment in released)

    def release_segment(self, segment: Segment) -> None:
        """Give one unsplit, free segment back to the driver."""
        self._take(segment.first)
        del self._blocks[segment.address], self.segments[segment.address]
        self.reserved -= segment.size

    def add_segment(self, address: int, size: int, small: bool) -> Segment:
        """Hold a segment from the driver, as one free block."""
        segment = self.segments[address] = Segment(address, size, small)
        self._end = max(self._end, address + size)
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self._blocks[address] = segment.first
        self._put(segment.first)
        return segment

    def carve(self, address: int, size: int) -> Block:
        """Mark a stretch of a free block as in use: for taking over a state that was recorded elsewhere."""
        block = next(b for b in self._blocks.values() if b.free and b.address <= address < b.address + b.size)
        self._take(block)
        if address > block.address:
            self._split(block, address - block.address)
            self._put(block)
            block = block.after
            self._take(block)
        if size < block.size:
            self._split(block, size)
        block.free = False
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def _best_fit(self, size: int) -> Block | None:
        """The smallest free block of the pool that is large enough, the lowest of equals (rules 2 and 3)."""
        free = self._free[_is_small(size)]
        place = bisect_left(free, (size, -1))
        return self._blocks[free[place][1]] if place < len(free) else None

    def _new_segment(self, size: int) -> Block:
        wanted = segment_size(size)
        if not self._fits(wanted):
            # Rule 8. (PyTorch first tries to release one cached block that is large enough, but only where
            # max_split_size_mb is set, which it is not by default.)
            self.empty_cache()
        if not self._fits(wanted):
            raise OutOfRoom(size)
        return self.add_segment(self._place(wanted), wanted, _is_small(size)).first

    def _fits(self, size: int) -> bool:
        return self.limit is None or self.reserved + size <= self.limit

    def _put(self, block: Block) -> None:
        insort(self._free[block.segment.small], (block.size, block.address))

    def _take(self, block: Block) -> None:
        free = self._free[block.segment.small]
        del free[bisect_left(free, (block.size, block.address))]

    def _split(self, block: Block, size: int) -> None:
        """Leave ``size`` bytes in the block; the rest becomes a free block after it."""
        rest = Block(block.address + size, block.size - size, block.segment, True, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        self._blocks[rest.address] = rest
        self._put(rest)

    def _merge(self, low: Block, high: Block) -> Block:
        low.size += high.size
        low.after = high.after
        if high.after is not None:
            high.after.before = low
        del self._blocks[high.address]
        return low

    def _after_the_last(self, size: int) -> int:
        return self._end


def rounded(asked: int) -> int:
    """Rule 1: a block's size, a multiple of 512 bytes."""
    return max(ROUND, -(-asked // ROUND) * ROUND)


def segment_size(size: int) -> int:
    """Rule 4: how much is asked of the driver for a block of ``size`` bytes."""
    if _is_small(size):
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE_LIMIT else -(-size // SEGMENT_ROUND) * SEGMENT_ROUND


def _is_small(size: int) -> bool:
    return size <= SMALL_LIMIT


def _worth_splitting(block: Block, size: int) -> bool:
    rest = block.size - size
    return rest >= ROUND if block.segment.small else rest > SMALL_LIMIT
