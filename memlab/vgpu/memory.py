"""The memory of the virtual GPU: every storage takes a block of a simulated caching allocator."""

import os
from collections.abc import Callable
from typing import Any

from memlab.allocator import Block, CachingAllocator, ExpandableAllocator
from memlab.errors import BadValue
from memlab.oom import cuda_message
from memlab.units import MIB
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import scratch
from memlab.vgpu.scratch.rule import RESULT, Result, Workspace


class VirtualMemory:
    """Blocks for storages and for what kernels need beside them; the counters of the card's allocator."""

    def __init__(self, card: Card):
        self.card = card
        self.blocks = _allocator(card)
        self._workspaces: set[tuple[str, bool]] = set()
        self._highest = 0  # allocated, since the loop last forgot its peaks
        self._reserved_before = 0  # the highest, until then

    def read_and_reset_peak(self) -> tuple[int, int]:
        """Bytes allocated now and at most since the last call."""
        peak = self.blocks.peak_allocated
        self._highest = max(self._highest, peak)
        self.blocks.peak_allocated = self.blocks.allocated
        return self.blocks.allocated, peak

    @property
    def peak_reserved(self) -> int:
        """The most bytes held from the driver so far."""
        return max(self._reserved_before, self.blocks.peak_reserved)

    # What the loop itself asks, through torch.cuda

    def empty_cache(self) -> None:
        """Give what is cached and free back to the driver."""
        self.blocks.empty_cache()

    def forget_peaks(self) -> None:
        """The peaks that the loop reads start again from now."""
        self._highest = self.blocks.peak_allocated = self.blocks.allocated
        self._reserved_before = self.peak_reserved
        self.blocks.peak_reserved = self.blocks.reserved

    def statistics(self) -> dict[str, Any]:
        """As ``torch.cuda.memory_stats_as_nested_dict``; what is freed and allocated in all is not counted."""
        blocks = self.blocks
        used = [block for segment in blocks.segments.values() for block in segment.blocks() if not block.free]
        highest = max(self._highest, blocks.peak_allocated)
        counted = {
            "allocated_bytes": (blocks.allocated, highest),
            "active_bytes": (blocks.allocated, highest),
            "requested_bytes": (blocks.allocated, highest),
            "reserved_bytes": (blocks.reserved, blocks.peak_reserved),
            "inactive_split_bytes": (blocks.reserved - blocks.allocated,) * 2,
            "allocation": (len(used),) * 2,
            "active": (len(used),) * 2,
            "segment": (len(blocks.segments),) * 2,
            "inactive_split": (0, 0),
        }
        plain: dict[str, Any] = {"num_alloc_retries": 0, "num_ooms": 0, "num_sync_all_streams": 0, "max_split_size": -1}
        plain |= {name: _counters(0, 0)["all"] for name in ("oversize_allocations", "oversize_segments")}
        return plain | {name: _counters(*numbers) for name, numbers in counted.items()}

    def out_of_memory(self, asked: int) -> str:
        """What PyTorch says on the card when this allocation does not fit."""
        return cuda_message(
            asked,
            capacity=self.card.capacity,
            context=self.card.context,
            reserved=self.blocks.reserved,
            allocated=self.blocks.allocated,
        )

    def run_kernel(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        in_backward: bool,
        allocate: Callable[[Result], None],
    ) -> None:
        """Allocate what an operator needs beside its results, in the order that CUDA's kernels have.

        Args:
            in_backward: whether it is the backward pass's thread: each thread has workspaces of its own.
            allocate: takes blocks for results, when it is their turn; for those whose turn does not come it isn't called.
        """
        steps = scratch(self.card, func, args, out, kwargs)
        if not steps:
            return
        if not any(isinstance(step, Result) for step in steps):
            allocate(RESULT)
        taken: list[tuple[int, Block | None]] = []
        for step in steps:
            if isinstance(step, Result):
                allocate(step)
            elif isinstance(step, Workspace):
                self._keep(step, in_backward)
            elif step >= 0:
                taken.append((step, self.blocks.allocate(step)))
            else:
                self._give_back(taken, -step)
        for _, block in reversed(taken):
            self._release(block)

    def _keep(self, workspace: Workspace, in_backward: bool) -> None:
        if (workspace.name, in_backward) not in self._workspaces:
            self._workspaces.add((workspace.name, in_backward))
            self.blocks.allocate(workspace.nbytes)

    def _give_back(self, taken: list[tuple[int, Block | None]], nbytes: int) -> None:
        last = max(index for index, (size, _) in enumerate(taken) if size == nbytes)
        self._release(taken.pop(last)[1])

    def _release(self, block: Block | None) -> None:
        if block is not None:  # of an empty tensor
            self.blocks.release(block)


def _counters(current: int, peak: int) -> dict[str, Any]:
    counted = {"current": current, "peak": peak, "allocated": 0, "freed": 0}
    nothing = dict.fromkeys(counted, 0)
    return {"all": counted, "small_pool": nothing, "large_pool": nothing}


def _allocator(card: Card) -> CachingAllocator:
    """The card's allocator with the settings of the environment, by their new name or the old one.

    Raises:
        BadValue: a setting that PyTorch would refuse, too.
    """
    texts = (os.environ.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    parts = (part.partition(":") for text in texts for part in text.lower().replace(" ", "").split(","))
    settings = {name: value for name, _, value in parts}
    if settings.get("expandable_segments") == "true":
        return ExpandableAllocator(limit=card.room)
    most = settings.get("max_split_size_mb")
    if most is not None and not most.isdecimal():
        raise BadValue(f"max_split_size_mb:{most} is not a number of MiB: give a whole number above 20.")
    return CachingAllocator(limit=card.room, max_split_size=None if most is None else int(most) * MIB)
