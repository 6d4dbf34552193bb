"""The caching allocator with ``expandable_segments:True``: one segment for each pool, which grows by pages.

The rules are those of ``ExpandableSegment`` and what uses it in PyTorch's ``c10/cuda/CUDACachingAllocator.cpp``.
Memory that comes later stands right behind what is there, so a free block at the end grows instead of lying
idle; and whole free pages go back to the driver even from between live blocks.
"""

from bisect import bisect_left
from collections.abc import Callable

from memlab.allocator.blocks import Block, Segment
from memlab.allocator.caching import CachingAllocator
from memlab.allocator.settings import DEFAULT, ROUND, SMALL_SEGMENT, Settings, is_small, round_up

ADDRESS_SPACE = 2**60  # of one segment, where nobody says how much


class ExpandableAllocator(CachingAllocator):
    """Allocated is exactly the sum of the rounded sizes; reserved grows by pages of 2 and 20 MiB (rule 9).

    Arguments, attributes and errors are those of :class:`CachingAllocator`. Ordinary segments that were taken over
    are used too, as in PyTorch when the setting is changed on the way.

    Args:
        space: the addresses of one segment, in bytes: on a card 9/8 of its memory. Where they are used up, in a pool
            with many holes, another segment begins.
    """

    def __init__(
        self,
        *,
        limit: int | None = None,
        allowed: int | None = None,
        settings: Settings = DEFAULT,
        place: Callable[[int], int] | None = None,
        space: int = ADDRESS_SPACE,
    ):
        super().__init__(limit=limit, allowed=allowed, settings=settings, place=place)
        self._space = space
        for small in (True, False):
            self._begin(small)

    def _begin(self, small: bool) -> Block:
        """A new segment, without memory: one free block of addresses."""
        size = round_up(self._space, self._page(small))
        segment = Segment(self._place(size), size, small, self._count, True, self.stream, self.graphs)
        return self._enter(segment).first

    def _page(self, small: bool) -> int:
        return SMALL_SEGMENT if small else self.settings.large_segment

    def empty_cache(self) -> int:
        """Give back every page and every ordinary segment that is wholly free; the bytes given back."""
        free = [self._blocks[address] for small in (True, False) for *_, address in self._pool(small=small)]
        unmapped = sum(self._unmap(block) for block in free if block.segment.expandable)
        return unmapped + super().empty_cache()

    def _best_fit(self, size: int) -> Block | None:
        """Rule 3, but a block counts with what it can grow by: this spares the one at the end."""
        free = self._serving(is_small(size))
        best = None
        for place in range(bisect_left(free, (size, -1)), len(free)):
            block = self._blocks[free[place][-1]]
            if best is not None and _room(block) >= _room(best):
                break  # PyTorch looks no further either
            best = block
        return best if best is not None and self._serves(best, size) else None

    def _release_oversized(self, size: int) -> bool:
        return False  # of segments that can be given back whole only

    def _worth_splitting(self, block: Block, size: int) -> bool:
        return block.size - size >= ROUND  # rule 5 as for the small pool, in both

    def _obtain(self, size: int) -> Block | None:
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
