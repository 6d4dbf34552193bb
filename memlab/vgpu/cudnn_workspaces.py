"""The plan that cuDNN runs, among its candidates, and the workspace that it takes meanwhile.

The rules are those of ``run_single_conv`` in ATen's ``Conv_v8.cpp``.
"""

from collections.abc import Hashable

from memlab.allocator import CachingAllocator, OutOfRoom
from memlab.vgpu.scratch.rule import Plan


class Plans:
    """The plans that were found on a card, each by the thread that runs it.

    Args:
        blocks: the card's allocator.
    """

    def __init__(self, blocks: CachingAllocator):
        self._blocks = blocks
        self._found: dict[tuple[Hashable, bool], int] = {}  # the workspace, by what is run and in which thread

    def run(self, plan: Plan, in_backward: bool) -> None:
        """Run the plan that was found before, else the first for whose workspace there is room.

        Raises:
            OutOfRoom: there is room for none.
        """
        key = plan.of, in_backward
        if key in self._found and self._fits(self._found[key]):
            return
        sizes = plan.sizes
        if plan.searched:
            sizes = self._search(sizes) or (min(sizes),)
        size = next((size for size in sizes[:-1] if self._fits(size)), None)
        if size is None:
            size = sizes[-1]
            self._take(size)
        self._found[key] = size

    def _search(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Try all of them with the largest workspace that there is room for; which ones had enough.

        ``generate_and_filter_plans``. Afterwards all that is cached is given back.
        """
        room = self._blocks.largest
        most = max((size for size in sizes if size <= room), default=0)
        while most and not self._fits(most):
            most //= 2
        self._blocks.empty_cache()
        return tuple(size for size in sizes if size <= most)

    def _fits(self, size: int) -> bool:
        try:
            self._take(size)
        except OutOfRoom:
            return False
        return True

    def _take(self, size: int) -> None:
        block = self._blocks.allocate(size)
        if block is not None:
            self._blocks.release(block)
