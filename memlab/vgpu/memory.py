"""The memory of the virtual GPU: every storage takes a block of a simulated caching allocator."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from memlab.allocator import Block, CachingAllocator, Settings, read_settings
from memlab.oom import IS_EXPANDABLE, TRY_EXPANDABLE, cuda_message
from memlab.vgpu.backward_streams import BackwardStreams
from memlab.vgpu.cards import Card
from memlab.vgpu.cudnn_workspaces import Plans
from memlab.vgpu.scratch.rule import RESULT, Plan, Remark, Result, Workspace
from memlab.vgpu.scratch.table import scratch
from memlab.vgpu.versions import TORCH


class VirtualMemory:
    """Blocks for storages and for what kernels need beside them; the counters of the card's allocator."""

    def __init__(self, card: Card):
        self.card = card
        # 9/8: CUDAAllocatorConfig's addresses of an expandable segment
        self.blocks = CachingAllocator(limit=card.room, settings=self._settings, space=card.capacity * 9 // 8)
        self.remarks: dict[Remark, None] = {}  # in order, each once
        self._workspaces: dict[tuple[str, bool, int], Block | None] = {}
        self.streams = BackwardStreams(self.blocks)
        self._plans = Plans(self.blocks)
        self._highest = 0  # allocated, since the loop last forgot its peaks
        self._reserved_before = 0  # the highest, until then

    def _settings(self) -> Settings:
        """The allocator's settings in the environment, by their new name or the old one, when the card is first used.

        Raises:
            BadValue: a setting that PyTorch would refuse, too.
        """
        # AcceleratorAllocatorConfig::instance reads the first of these that is set, if only to nothing.
        texts = (os.environ.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
        settings = _read(next((text for text in texts if text is not None), ""))
        if settings.fraction is not None and self.blocks.allowed is None:
            self.allow(int(settings.fraction * self.card.capacity))
        return settings

    def configure(self, text: str) -> None:
        """Follow these settings from now on (``torch.cuda.memory._set_allocator_settings``).

        What is not named becomes what PyTorch has by itself; only whether segments are expandable stays.

        Raises:
            BadValue: a setting that PyTorch would refuse, too.
        """
        before = self.initialize()
        named = _read(text)
        stays = "expandable_segments" not in text
        self.blocks.settings = replace(named, expandable=before.expandable) if stays else named

    def initialize(self) -> Settings:
        """The card is used for the first time, if it was not yet: its allocator reads its settings."""
        return self.blocks.settings

    def read_and_reset_peak(self) -> tuple[int, int, int]:
        """Bytes allocated now, at most since the last call, and reserved."""
        peak = self.blocks.peak_allocated
        self._highest = max(self._highest, peak)
        self.blocks.peak_allocated = self.blocks.allocated
        return self.blocks.allocated, peak, self.blocks.reserved

    @property
    def peak_allocated(self) -> int:
        """The most bytes allocated, since the loop last forgot its peaks."""
        return max(self._highest, self.blocks.peak_allocated)

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
        highest = self.peak_allocated
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
        """Return PyTorch's message for a segment of so many bytes that does not fit on the card."""
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
            in_backward: whether it is the backward pass's thread: each thread has workspaces of its own, one a stream.
            allocate: takes blocks for results when it is their turn, where a rule says when that is.
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
            elif isinstance(step, Plan):
                self._plans.run(step, in_backward)
            elif isinstance(step, Remark):
                self.remarks[step] = None
            elif step >= 0:
                taken.append((step, self.blocks.allocate(step)))
            else:
                self._give_back(taken, -step)
        for _, block in reversed(taken):
            self._release(block)

    def _keep(self, workspace: Workspace, in_backward: bool) -> None:
        key = workspace.name, in_backward, self.blocks.stream
        if key not in self._workspaces:
            self._workspaces[key] = self.blocks.allocate(workspace.nbytes)

    def clear_workspaces(self) -> None:
        """Free what matrix products keep, of all threads and streams (``clearCublasWorkspaces``)."""
        for block in self._workspaces.values():
            self._release(block)
        self._workspaces.clear()

    def _give_back(self, taken: list[tuple[int, Block | None]], nbytes: int) -> None:
        last = max(index for index, (size, _) in enumerate(taken) if size == nbytes)
        self._release(taken.pop(last)[1])

    def _release(self, block: Block | None) -> None:
        if block is not None:  # of an empty tensor
            self.blocks.release(block)


def _read(text: str) -> Settings:
    return replace(read_settings(text), older_first=TORCH >= (2, 13))


def _counters(current: int, peak: int) -> dict[str, Any]:
    counted = {"current": current, "peak": peak, "allocated": 0, "freed": 0}
    nothing = dict.fromkeys(counted, 0)
    return {"all": counted, "small_pool": nothing, "large_pool": nothing}


_ADVISES_LESS = TORCH > (2, 13)  # seen in 2.15, not in 2.13
