"""The memory of the virtual GPU: every storage takes a block of a simulated caching allocator."""

import os
from dataclasses import replace
from typing import Any

import torch

from memlab.allocator import Block, CachingAllocator, ExpandableAllocator, read_settings
from memlab.oom import IS_EXPANDABLE, TRY_EXPANDABLE, cuda_message
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import scratch
from memlab.vgpu.scratch.cublas import MATMULS


class VirtualMemory:
    """Blocks for storages and for what kernels need beside them; the counters of the card's allocator."""

    def __init__(self, card: Card):
        self.card = card
        self.blocks = _allocator(card)
        if (fraction := self.blocks.settings.fraction) is not None:
            self.allow(int(fraction * card.capacity))
        self._workspaces: dict[bool, Block | None] = {}
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
        plain: dict[str, Any] = {
            "num_alloc_retries": blocks.retries,
            "num_ooms": blocks.failures,
            "num_sync_all_streams": 0,
            "max_split_size": blocks.settings.max_split_size or -1,
        }
        plain |= {name: _counters(0, 0)["all"] for name in ("oversize_allocations", "oversize_segments")}
        return plain | {name: _counters(*numbers) for name, numbers in counted.items()}

    @property
    def unfollowed(self) -> str:
        """A sentence about the allocator's settings that the prediction leaves out, or ``""``."""
        names = " and ".join(self.blocks.settings.unfollowed)
        return names and f"{names} is not followed: what is predicted is PyTorch's own allocator without it."

    def allow(self, budget: int | None) -> None:
        """The allocator may hold at most so many bytes; None: all that the card has."""
        # setMemoryFraction: a fraction of 1 is none.
        self.blocks.allowed = budget if budget is not None and budget < self.card.capacity else None

    @property
    def limit(self) -> int:
        """The most bytes that the allocator can hold."""
        return self.card.room if self.blocks.allowed is None else min(self.blocks.allowed, self.card.room)

    def out_of_memory(self, segment: int) -> str:
        """What PyTorch says on the card when it cannot get a segment of so many bytes."""
        blocks = self.blocks
        return cuda_message(
            segment,
            capacity=self.card.capacity,
            context=self.card.context,
            reserved=blocks.reserved,
            allocated=blocks.allocated,
            allowed=blocks.allowed,
            advice=IS_EXPANDABLE if blocks.settings.expandable and _ADVISES_LESS else TRY_EXPANDABLE,
        )

    def run_kernel(self, func: Any, args: tuple[Any, ...], out: Any, in_backward: bool) -> None:
        """Allocate what an operator needs beside its results."""
        if func.overloadpacket in MATMULS and in_backward not in self._workspaces:
            # One for the thread of the forward pass and one for the backward's; they stay.
            self._workspaces[in_backward] = self.blocks.allocate(self.card.cublas_workspace)
        for block in [self.blocks.allocate(size) for size in scratch(self.card, func, args, out)]:
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
    # AcceleratorAllocatorConfig::instance reads the first of these that is set, if only to nothing.
    texts = (os.environ.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    settings = read_settings(next((text for text in texts if text is not None), ""))
    settings = replace(settings, older_first=_TORCH >= (2, 13))
    kind = ExpandableAllocator if settings.expandable else CachingAllocator
    return kind(limit=card.room, settings=settings)


_TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
_ADVISES_LESS = _TORCH > (2, 13)  # seen in 2.15, not in 2.13
