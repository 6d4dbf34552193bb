"""The CUDA caching allocator, simulated: where each allocation lands, what is reserved, what runs out.

The rules are those of PyTorch's ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.h``;
the comments number them. ``tests/allocator/test_real_traces.py`` holds them to what real GPUs allocated.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from memlab.errors import BadValue
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
    """A stretch of a segment, in use or free, between its neighbours. Sizes and addresses in bytes.

    ``mapped`` says whether memory stands behind it: always, except in an expandable segment.
    """

    address: int
    size: int
    segment: "Segment"
    free: bool = True
    mapped: bool = True
    before: "Block | None" = None
    after: "Block | None" = None


@dataclass(eq=False, slots=True)
class Segment:
    """What the driver gave in one piece: memory, or addresses alone for an ``expandable`` one.

    ``small`` says which pool it serves.
    """

    address: int
    size: int
    small: bool
    expandable: bool = False
    first: Block = field(init=False)

    def __post_init__(self) -> None:
        self.first = Block(self.address, self.size, self, mapped=not self.expandable)

    @property
    def unsplit(self) -> bool:
        """Whether the whole segment is one free block of memory."""
        return self.first.free and self.first.mapped and self.first.after is None

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
        max_split_size: bytes; blocks from here on are *oversized*: never split, and kept for allocations that are
            oversized too (PyTorch's ``max_split_size_mb``). None, its default: there are none.
        place: gives the address of a new segment of so many bytes; by default one after the other.

    Attributes:
        allocated, reserved: bytes in live blocks; bytes held from the driver.
        peak_allocated, peak_reserved: the most of each so far.
        segments: what is held from the driver, by address.

    Raises:
        BadValue: ``max_split_size`` is not above 20 MiB, as PyTorch demands.
    """

    def __init__(
        self,
        *,
        limit: int | None = None,
        max_split_size: int | None = None,
        place: Callable[[int], int] | None = None,
    ):
        if max_split_size is not None and max_split_size <= LARGE_SEGMENT:
            raise BadValue(f"max_split_size={max_split_size!r} is too small: give more than {LARGE_SEGMENT} (20 MiB).")
        self.limit = limit
        self.max_split_size = max_split_size
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.segments: dict[int, Segment] = {}
        self._place = place or self._after_the_last
        self._end = 0
        # Free blocks as (size, address), sorted: the first that is large enough fits best. A list for each
        # (small, mapped), since pools and what has no memory behind it are kept apart.
        self._free: dict[tuple[bool, bool], list[tuple[int, int]]]
        self._free = {(small, mapped): [] for small in (True, False) for mapped in (True, False)}
        self._blocks: dict[int, Block] = {}

    def allocate(self, asked: int) -> Block | None:
        """A block of at least ``asked`` bytes; None for 0 bytes, which allocate nothing.

        Raises:
            OutOfRoom: when the limit leaves no room, even after all that is cached has been released.
        """
        if asked == 0:
            return None
        size = rounded(asked)  # rule 1
        block = self._best_fit(size) or self._grow(size)
        self._take(block)
        if self._worth_splitting(block, size):  # rule 5
            self._split(block, size)
        return self._use(block)

    def release(self, block: Block) -> None:
        """Free a block; it merges with free neighbours, and its segment stays reserved (rule 7)."""
        self.allocated -= block.size
        block.free = True
        self._join(block)

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
        self._reserve(size)
        return self._enter(Segment(address, size, small))

    def carve(self, address: int, size: int) -> Block:
        """Mark a stretch of a free block as in use: for taking over a state that was recorded elsewhere."""
        cached = (block for block in self._blocks.values() if block.free and block.mapped)
        block = next(block for block in cached if block.address <= address < block.address + block.size)
        return self._use(self._cut_out(block, address, size))

    def snapshot(self) -> list[dict[str, Any]]:
        """What is held, by address, as plain data: those fields of ``torch.cuda.memory_snapshot()`` that a map needs.

        Each segment has ``address`` and ``total_size`` in bytes, ``segment_type`` (``"small"`` or ``"large"``: its
        pool) and ``blocks``, each with ``address``, ``size`` and ``state`` (``"active_allocated"`` or ``"inactive"``).
        """
        segments = sorted(self.segments.values(), key=lambda segment: segment.address)
        # As PyTorch does it: each unbroken stretch of memory in an expandable segment is told as one segment.
        stretches = (groupby(segment.blocks(), lambda block: block.mapped) for segment in segments)
        return [_plain(blocks) for stretch in stretches for mapped, blocks in stretch if mapped]

    def _best_fit(self, size: int) -> Block | None:
        """The smallest free block of the pool that is large enough, the lowest of equals (rules 2 and 3)."""
        free = self._free[is_small(size), True]
        place = bisect_left(free, (size, -1))
        if place == len(free):
            return None
        found, address = free[place]
        if self._oversized(found) and (not self._oversized(size) or found >= size + LARGE_SEGMENT):  # rule 10
            return None
        return self._blocks[address]

    def _grow(self, size: int) -> Block:
        """A free block of at least ``size`` bytes, with more memory from the driver."""
        if not self._fits(self._needed(size)):  # rule 8
            enough = self._release_oversized(size)
            if not (enough and self._fits(self._needed(size))):
                self.empty_cache()
        if not self._fits(self._needed(size)):
            raise OutOfRoom(size)
        return self._obtain(size)

    def _release_oversized(self, size: int) -> bool:
        """Rule 10: give back one oversized free block that is large enough, else several, the largest first.

        Whether as much was given back as is needed, or as makes a block oversized.
        """
        if self.max_split_size is None:
            return False
        free = self._free[is_small(size), True]
        wanted = max(size, self.max_split_size)
        place = bisect_left(free, (wanted, -1))
        if place < len(free):
            self.release_segment(self.segments[free[place][1]])
            return True
        while wanted > 0 and free and self._oversized(free[-1][0]):
            wanted -= free[-1][0]
            self.release_segment(self.segments[free[-1][1]])
        return wanted <= 0

    def _oversized(self, size: int) -> bool:
        return self.max_split_size is not None and size >= self.max_split_size

    def _needed(self, size: int) -> int:
        """How many bytes :meth:`_obtain` takes from the driver."""
        return segment_size(size)

    def _obtain(self, size: int) -> Block:
        wanted = segment_size(size)
        return self.add_segment(self._place(wanted), wanted, is_small(size)).first

    def _worth_splitting(self, block: Block, size: int) -> bool:
        rest = block.size - size
        return rest >= ROUND if block.segment.small else rest > SMALL_LIMIT and not self._oversized(size)

    def _fits(self, size: int) -> bool:
        return self.limit is None or self.reserved + size <= self.limit

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _enter(self, segment: Segment) -> Segment:
        self.segments[segment.address] = segment
        self._end = max(self._end, segment.address + segment.size)
        self._blocks[segment.address] = segment.first
        self._put(segment.first)
        return segment

    def _use(self, block: Block) -> Block:
        """Count the block, which may be larger than what was asked for (rule 6)."""
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def _put(self, block: Block) -> None:
        insort(self._free[block.segment.small, block.mapped], (block.size, block.address))

    def _take(self, block: Block) -> None:
        free = self._free[block.segment.small, block.mapped]
        del free[bisect_left(free, (block.size, block.address))]

    def _split(self, block: Block, size: int) -> Block:
        """Leave ``size`` bytes in the block; the rest becomes a free block after it."""
        rest = Block(block.address + size, block.size - size, block.segment, True, block.mapped, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        self._blocks[rest.address] = rest
        self._put(rest)
        return rest

    def _cut_out(self, block: Block, address: int, size: int) -> Block:
        """Take this stretch from the free block in which it lies; what is before and behind it stays free."""
        if address > block.address:
            self._take(block)
            rest = self._split(block, address - block.address)
            self._put(block)
            block = rest
        self._take(block)
        if size < block.size:
            self._split(block, size)
        return block

    def _join(self, block: Block) -> Block:
        """Put a block that has become free, merged with free neighbours: memory with memory only."""
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free and neighbour.mapped == block.mapped:
                self._take(neighbour)
                block = self._merge(*sorted((block, neighbour), key=lambda part: part.address))
        self._put(block)
        return block

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
    return max(ROUND, round_up(asked, ROUND))


def segment_size(size: int) -> int:
    """Rule 4: how much is asked of the driver for a block of ``size`` bytes."""
    if is_small(size):
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < LARGE_LIMIT else round_up(size, SEGMENT_ROUND)


def is_small(size: int) -> bool:
    """Rule 2: whether a block of ``size`` bytes comes from the small pool."""
    return size <= SMALL_LIMIT


def round_up(size: int, step: int) -> int:
    """The first multiple of ``step`` that is not below ``size``."""
    return -(-size // step) * step


def _plain(blocks: Iterable[Block]) -> dict[str, Any]:
    """Adjoining blocks as one segment of a snapshot."""
    states = {True: "inactive", False: "active_allocated"}
    held = list(blocks)
    return {
        "address": held[0].address,
        "total_size": sum(block.size for block in held),
        "segment_type": "small" if held[0].segment.small else "large",
        "blocks": [{"address": b.address, "size": b.size, "state": states[b.free]} for b in held],
    }
