"""The CUDA caching allocator, simulated: where each allocation lands, what is reserved, what runs out.

The rules are those of PyTorch's ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.h``;
the comments number them. ``tests/allocator/test_real_traces.py`` holds them to what real GPUs allocated.
"""

import sys
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from itertools import groupby
from typing import Any

from memlab.allocator.blocks import Block, Segment, plain
from memlab.allocator.settings import (
    DEFAULT,
    ROUND,
    SEGMENT_ROUND,
    SMALL_LIMIT,
    SMALL_SEGMENT,
    Settings,
    is_small,
    round_up,
)

ADDRESS_SPACE = 2**60  # of one expandable segment, where nobody says how much


class OutOfRoom(Exception):
    """No block, no room for a new segment, and nothing left to release.

    ``asked`` is the size of the block, ``segment`` how much the driver was asked for, both in bytes.
    """

    def __init__(self, asked: int, segment: int):
        super().__init__(asked, segment)
        self.asked = asked
        self.segment = segment


class CachingAllocator:
    """Blocks are cut from cached segments, merged when freed, and given back to the driver only in need.

    With ``expandable_segments:True`` a pool has one segment, which grows by pages of 2 and 20 MiB (rule 9). Allocated
    is then exactly the sum of the rounded sizes, a free block at the end grows instead of lying idle, and whole pages
    that are free go back to the driver even from between live blocks.

    Args:
        limit: what the driver has, in bytes, None for no limit.
        allowed: the most bytes that may be reserved of it (PyTorch's ``set_per_process_memory_fraction``), None: all.
        settings: how it rounds, splits and collects; or a function that tells it when that is first needed, as PyTorch
            reads its environment.
        space: the addresses of one expandable segment, in bytes: on a card 9/8 of its memory. Where they are used up,
            in a pool with many holes, another segment begins.
        place: gives the address of a new segment of so many bytes; by default the lowest where it fits, as a driver
            nearly does.

    Attributes:
        settings: those in force. Others may be given on the way, as PyTorch takes them: what is held stays as it is.
        allocated, reserved: bytes in live blocks; bytes held from the driver.
        peak_allocated, peak_reserved: the most of each so far.
        segments: what is held from the driver, by address.
        stream: for which stream blocks are allocated from now on. Free blocks serve the stream of their segment only.
        graphs: from which private pool of CUDA graphs they are, 0 for none. Its segments stay its own (rule 12).
        retries, failures: how often all that is cached was given back for an allocation; how often that was in vain.
        listener: is told what happens in the words of PyTorch's own history (``"alloc"``, ``"segment_alloc"``), the
            address and the bytes; of ``"oom"`` the bytes that the driver has left, in the place of an address.
    """

    def __init__(
        self,
        *,
        limit: int | None = None,
        allowed: int | None = None,
        settings: Settings | Callable[[], Settings] = DEFAULT,
        space: int = ADDRESS_SPACE,
        place: Callable[[int], int] | None = None,
    ):
        self.limit = limit
        self.allowed = allowed
        if isinstance(settings, Settings):
            self.settings = settings
        else:
            self._read_settings = settings
        self._space = space
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.retries = self.failures = 0
        self.segments: dict[int, Segment] = {}
        self._place = place or self._lowest
        self.stream = self.graphs = 0
        # Free blocks as _key has them, sorted: the first that is large enough fits best. A list for each
        # (small, mapped, stream, graphs), since pools, streams and what has no memory behind it are kept apart.
        self._free: defaultdict[tuple[bool, bool, int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self._blocks: dict[int, Block] = {}
        self._count = 0  # of segments, ever
        # How often each pool was asked, by (small, graphs), while old segments are collected.
        self._asked: defaultdict[tuple[bool, int], int] = defaultdict(int)
        self._shared = {0}  # pools whose segments may be given back to the driver: graphs that are gone leave theirs
        self.listener: Callable[[str, int, int], None] = _unheard

    @cached_property
    def settings(self) -> Settings:
        return self._read_settings()

    def allocate(self, asked: int) -> Block | None:
        """A block of at least ``asked`` bytes; None for 0 bytes, which allocate nothing.

        Raises:
            OutOfRoom: when the limit leaves no room, even after all that is cached has been released.
        """
        if asked == 0:
            return None
        size = self.settings.rounded(asked)  # rule 1
        self._asked[is_small(size), self.graphs] += self._collects
        block = self._best_fit(size) or self._grow(size)
        self._take(block)
        if self._worth_splitting(block, size):  # rule 5
            self._split(block, size)
        return self._use(block)

    def release(self, block: Block) -> None:
        """Free a block; it merges with free neighbours, and its segment stays reserved (rule 7)."""
        self.allocated -= block.size
        block.free = True
        self.listener("free_completed", block.address, block.size)
        self._join(block)

    def empty_cache(self) -> int:
        """Give back every segment that is one free block, and every free page of expandable ones; the bytes given back.

        Those of graphs stay.
        """
        free = [self._blocks[address] for small in (True, False) for *_, address in self._pool(small=small)]
        unmapped = sum(self._unmap(block) for block in free if block.segment.expandable)
        released = [segment for segment in self.segments.values() if segment.unsplit and segment.graphs in self._shared]
        for segment in released:
            self.release_segment(segment)
        return unmapped + sum(segment.size for segment in released)

    @property
    def largest(self) -> int:
        """The most bytes that one more block may have (``cacheInfo``): what the driver has left, or what is cached."""
        left = self.limit - self.reserved if self.limit is not None else sys.maxsize
        return max([left, *(size for (_, mapped, *_), free in self._free.items() if mapped for size, *_ in free)])

    def release_segment(self, segment: Segment) -> None:
        """Give one unsplit, free segment back to the driver."""
        self._take(segment.first)
        del self._blocks[segment.address], self.segments[segment.address]
        self.reserved -= segment.size
        self.listener("segment_free", segment.address, segment.size)

    def add_segment(self, address: int, size: int, small: bool) -> Segment:
        """Hold a segment from the driver, as one free block."""
        self._reserve(size)
        self.listener("segment_alloc", address, size)
        return self._enter(Segment(address, size, small, self._count, stream=self.stream, graphs=self.graphs))

    def let_go(self, graphs: int) -> None:
        """The graphs of a private pool are gone: what is free of it may be given back."""
        self._shared.add(graphs)

    def used_by(self, graphs: int) -> list[Block]:
        """The blocks of a private pool that are in use."""
        return [block for block in self._blocks.values() if not block.free and block.segment.graphs == graphs]

    def at(self, address: int) -> Block:
        """The block that begins at an address."""
        return self._blocks[address]

    def carve(self, address: int, size: int) -> Block:
        """Mark a stretch of a free block as in use: for taking over a state that was recorded elsewhere."""
        cached = (block for block in self._blocks.values() if block.free and block.mapped)
        block = next(block for block in cached if block.address <= address < block.address + block.size)
        return self._use(self._cut_out(block, address, size))

    def snapshot(self) -> list[dict[str, Any]]:
        """Return segments and blocks, by address: those fields of ``torch.cuda.memory_snapshot()`` that a map needs.

        Each segment has ``address`` and ``total_size`` in bytes, ``segment_type`` (``"small"`` or ``"large"``: its
        pool) and ``blocks``, each with ``address``, ``size`` and ``state`` (``"active_allocated"`` or ``"inactive"``).
        """
        segments = sorted(self.segments.values(), key=lambda segment: segment.address)
        # As PyTorch does it: each unbroken stretch of memory in an expandable segment is told as one segment.
        stretches = (groupby(segment.blocks(), lambda block: block.mapped) for segment in segments)
        return [plain(blocks) for stretch in stretches for mapped, blocks in stretch if mapped]

    def _best_fit(self, size: int) -> Block | None:
        """The smallest free block of the pool that is large enough, the first of equals (rules 2 and 3).

        An expandable one counts with what it can grow by: this spares the one at the end.
        """
        free = self._serving(is_small(size))
        best = None
        for place in range(bisect_left(free, (size, -1)), len(free)):
            block = self._blocks[free[place][-1]]
            if block.segment.expandable and not self.settings.expandable:
                continue  # the setting was taken back on the way
            if best is not None and _room(block) >= _room(best):
                break  # PyTorch looks no further either
            best = block
            if not block.segment.expandable:
                break
        return best if best is not None and self._serves(best, size) else None

    def _serves(self, block: Block, size: int) -> bool:
        """Rule 10: oversized blocks are for what is oversized too, and about as large."""
        if not self.settings.oversized(block.size):
            return True
        return self.settings.oversized(size) and block.size < size + self.settings.max_non_split_rounding

    def _grow(self, size: int) -> Block:
        """A free block of at least ``size`` bytes, with more memory from the driver."""
        if not self.graphs:
            self._collect()
        block = self._obtain(size)
        if block is None and self._release_oversized(size):
            block = self._obtain(size)
        if block is None and not self.graphs:  # rule 8, and 12: while a graph is captured, nothing is given back
            self.empty_cache()
            self.retries += 1
            block = self._obtain(size)
        if block is None:
            self.failures += 1
            self.listener("oom", (self.limit or 0) - self.reserved, size)
            raise OutOfRoom(size, self.settings.segment_size(size))
        return block

    @property
    def _collects(self) -> bool:
        return self.settings.threshold > 0 and self.allowed is not None

    def _collect(self) -> None:
        """Rule 11: give back free segments of at least the mean age, until enough (garbage_collect_cached_blocks)."""
        if not self._collects:
            return
        assert self.allowed is not None
        wanted = self.reserved - int(self.settings.threshold * self.allowed)
        free = [self._blocks[address] for *_, address in self._pool(small=False)]
        free = [block for block in free if not block.segment.graphs]
        age = {block.address: self._asked[False, 0] - block.since for block in free if block.segment.unsplit}
        while wanted > 0 and age:
            mean = sum(age.values()) / len(age)
            for address in [address for address in age if age[address] >= mean]:
                del age[address]
                wanted -= self.segments[address].size
                self.release_segment(self.segments[address])

    def _release_oversized(self, size: int) -> bool:
        """Rule 10: give back one oversized free block that is large enough, else several, the largest first.

        Whether as much was given back as is needed, or as makes a block oversized.
        """
        if self.settings.expandable or self.settings.max_split_size is None:
            return False  # expandable segments cannot be given back whole
        free = self._serving(is_small(size))
        wanted = max(size, self.settings.max_split_size)
        place = bisect_left(free, (wanted, -1))
        if place < len(free):
            self.release_segment(self.segments[free[place][-1]])
            return True
        while wanted > 0 and free and self.settings.oversized(free[-1][0]):
            wanted -= free[-1][0]
            self.release_segment(self.segments[free[-1][-1]])
        return wanted <= 0

    def _obtain(self, size: int) -> Block | None:
        """A free block with new memory, None where there is too little."""
        if self.settings.expandable:
            return self._expand(size)
        wanted = self.settings.segment_size(size)
        if not (self._is_allowed(size) and self._fits(wanted)):
            return None
        return self.add_segment(self._place(wanted), wanted, is_small(size)).first

    def _worth_splitting(self, block: Block, size: int) -> bool:
        rest = block.size - size
        if block.segment.small or self.settings.expandable:
            return rest >= ROUND
        return rest > SMALL_LIMIT and not self.settings.oversized(size)

    def _is_allowed(self, size: int) -> bool:
        # alloc_block compares with the size of an ordinary segment even where an expandable one would need less.
        return self.allowed is None or self.reserved + self.settings.segment_size(size) <= self.allowed

    def _fits(self, size: int) -> bool:
        return self.limit is None or self.reserved + size <= self.limit

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _enter(self, segment: Segment) -> Segment:
        self._count += 1
        self.segments[segment.address] = segment
        self._blocks[segment.address] = segment.first
        self._put(segment.first)
        return segment

    def _use(self, block: Block) -> Block:
        """Count the block, which may be larger than what was asked for (rule 6)."""
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.listener("alloc", block.address, block.size)
        return block

    def _put(self, block: Block) -> None:
        block.since = self._asked[block.segment.small, block.segment.graphs]
        insort(self._free_like(block), self._key(block))

    def _take(self, block: Block) -> None:
        free = self._free_like(block)
        del free[bisect_left(free, self._key(block))]

    def _free_like(self, block: Block) -> list[tuple[int, int, int]]:
        return self._free[block.segment.small, block.mapped, block.segment.stream, block.segment.graphs]

    def _serving(self, small: bool, mapped: bool = True) -> list[tuple[int, int, int]]:
        """The free blocks that serve the work at hand."""
        return self._free[small, mapped, self.stream, self.graphs]

    def _pool(self, *, small: bool) -> list[tuple[int, int, int]]:
        """The free blocks of a pool that have memory and may be given back, whatever stream they serve."""
        kept = self._free.items()
        pools = [
            free
            for (of_small, mapped, _, graphs), free in kept
            if mapped and of_small is small and graphs in self._shared
        ]
        return [key for free in pools for key in free]

    def _key(self, block: Block) -> tuple[int, int, int]:
        """By what free blocks are sorted: size, age of the segment or nothing, address."""
        return block.size, block.segment.number if self.settings.older_first else 0, block.address

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

    def _lowest(self, size: int) -> int:
        """The lowest address from which so many bytes are free."""
        address = 0
        for segment in sorted(self.segments.values(), key=lambda segment: segment.address):
            if segment.address - address >= size:
                break
            address = round_up(segment.address + segment.size, SEGMENT_ROUND)
        return address

    # Expandable segments (``ExpandableSegment``, and what uses it)

    def _page(self, small: bool) -> int:
        return SMALL_SEGMENT if small else self.settings.large_segment

    def _begin(self, small: bool) -> Block:
        """A new segment, without memory: one free block of addresses."""
        size = round_up(self._space, self._page(small))
        segment = Segment(self._place(size), size, small, self._count, True, self.stream, self.graphs)
        return self._enter(segment).first

    def _expand(self, size: int) -> Block | None:
        if not self._is_allowed(size):
            return None
        # Where the free block before the unmapped one is large enough (rule 10 refused it), nothing is mapped. Else the
        # last one mapped has merged with all that is before it; what was mapped before there was too little stays.
        block, unmapped = self._find(size)
        for piece, nbytes in unmapped:
            if not self._fits(nbytes):
                return None
            block = self._map(piece, nbytes)
        return block

    def _find(self, size: int) -> tuple[Block, list[tuple[Block, int]]]:
        """Return the lowest block where ``size`` bytes fit in one piece, and the blocks to map, with bytes of each."""
        small = is_small(size)
        page = self._page(small)
        for address in sorted(address for *_, address in self._serving(small, mapped=False)):
            start = _start(self._blocks[address])
            unmapped = _unmapped_from(start, size, page)
            if unmapped is not None:
                return start, unmapped
        new = self._begin(small)
        return new, [(new, round_up(size, page))]

    def _map(self, block: Block, nbytes: int) -> Block:
        """Put memory behind the first bytes of an unmapped block; the free block that they are then part of."""
        block = self._cut_out(block, block.address, nbytes)
        block.mapped = True
        self._reserve(nbytes)
        self.listener("segment_map", block.address, nbytes)
        return self._join(block)

    def _unmap(self, block: Block) -> int:
        """Give back the whole pages in a free block; the bytes given back."""
        page = self._page(block.segment.small)
        start = block.segment.address
        first = round_up(block.address - start, page)
        nbytes = (block.address + block.size - start) // page * page - first
        if nbytes <= 0:
            return 0
        block = self._cut_out(block, start + first, nbytes)
        block.mapped = False
        self.reserved -= nbytes
        self.listener("segment_unmap", block.address, nbytes)
        self._join(block)
        return nbytes


def _unheard(action: str, address: int, size: int) -> None:
    pass


def _room(block: Block) -> int:
    """The size of a free block, and of the unmapped block behind it."""
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)


def _start(block: Block) -> Block:
    """Return the block in which a piece that uses this unmapped block begins: the free block before it, or itself."""
    return block.before if block.before is not None and block.before.free else block


def _unmapped_from(block: Block | None, size: int, page: int) -> list[tuple[Block, int]] | None:
    """Return the blocks to map, with bytes of each, for ``size`` bytes from ``block`` on; None if one is in use."""
    found = []
    while size > 0:
        if block is None or not block.free:
            return None
        usable = block.size
        if not block.mapped:
            usable = min(round_up(size, page), block.size)
            found.append((block, usable))
        size -= usable
        block = block.after
    return found
