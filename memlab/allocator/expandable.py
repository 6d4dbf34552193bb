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

# The addresses of one segment. PyTorch takes 9/8 of the card's memory, and another segment should that ever be used
# up; here it is what PyTorch refuses to allocate at once, so one segment is always enough.
ADDRESS_SPACE = 2**60


class ExpandableAllocator(CachingAllocator):
    """Allocated is exactly the sum of the rounded sizes; reserved grows by pages of 2 and 20 MiB (rule 9).

    Arguments, attributes and errors are those of :class:`CachingAllocator`. Ordinary segments that were taken over
    are used too, as in PyTorch when the setting is changed on the way.
    """

    def __init__(
        self,
        *,
        limit: int | None = None,
        allowed: int | None = None,
        settings: Settings = DEFAULT,
        place: Callable[[int], int] | None = None,
    ):
        super().__init__(limit=limit, allowed=allowed, settings=settings, place=place)
        for small in (True, False):
            self._enter(Segment(self._place(ADDRESS_SPACE), ADDRESS_SPACE, small, self._count, expandable=True))

    def empty_cache(self) -> int:
        """Give back every page and every ordinary segment that is wholly free; the bytes given back."""
        free = [self._blocks[address] for small in (True, False) for *_, address in self._free[small, True]]
        unmapped = sum(self._unmap(block) for block in free if block.segment.expandable)
        return unmapped + super().empty_cache()

    def _best_fit(self, size: int) -> Block | None:
        """Rule 3, but a block counts with what it can grow by: this spares the one at the end."""
        free = self._free[is_small(size), True]
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
        # The last one mapped has merged with all that is before it. What was mapped before there was too little stays.
        block = None
        for unmapped, nbytes in self._to_map(size) if self._is_allowed(size) else ():
            if not self._fits(nbytes):
                return None
            block = self._map(unmapped, nbytes)
        return block

    def _to_map(self, size: int) -> list[tuple[Block, int]]:
        """Which unmapped blocks need how many bytes of memory, for ``size`` bytes in one piece as low as possible."""
        small = is_small(size)
        by_address = sorted(address for *_, address in self._free[small, False])
        page = SMALL_SEGMENT if small else self.settings.large_segment
        found = (_unmapped_from(_start(self._blocks[address]), size, page) for address in by_address)
        return next(filter(None, found))

    def _map(self, block: Block, nbytes: int) -> Block:
        """Put memory behind the first bytes of an unmapped block; the free block that they are then part of."""
        block = self._cut_out(block, block.address, nbytes)
        block.mapped = True
        self._reserve(nbytes)
        return self._join(block)

    def _unmap(self, block: Block) -> int:
        """Give back the whole pages in a free block; the bytes given back."""
        page = SMALL_SEGMENT if block.segment.small else self.settings.large_segment
        start = block.segment.address
        first = round_up(block.address - start, page)
        nbytes = (block.address + block.size - start) // page * page - first
        if nbytes <= 0:
            return 0
        block = self._cut_out(block, start + first, nbytes)
        block.mapped = False
        self.reserved -= nbytes
        self._join(block)
        return nbytes


def _room(block: Block) -> int:
    """The size of a free block, and of the unmapped block behind it."""
    after = block.after
    return block.size + (after.size if after is not None and not after.mapped else 0)


def _start(block: Block) -> Block:
    """Where a piece that uses this unmapped block can begin: in the free block before it, if there is one."""
    return block.before if block.before is not None and block.before.free else block


def _unmapped_from(block: Block | None, size: int, page: int) -> list[tuple[Block, int]]:
    """What to map for ``size`` bytes from this block on; nothing where a block in use is in the way."""
    found = []
    while size > 0:
        if block is None or not block.free:
            return []
        usable = block.size
        if not block.mapped:
            usable = min(round_up(size, page), block.size)
            found.append((block, usable))
        size -= usable
        block = block.after
    return found
