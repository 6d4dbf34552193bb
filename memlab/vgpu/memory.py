"""The memory of the virtual GPU: every storage takes a block of a simulated caching allocator."""

import os
from dataclasses import replace
from typing import NoReturn

from memlab.allocator import Block, CachingAllocator, ExpandableAllocator, OutOfRoom
from memlab.errors import BadValue
from memlab.oom import cuda_message
from memlab.trace import Phase
from memlab.tracking import BudgetExceeded, Tracker
from memlab.units import MIB
from memlab.vgpu.backend import DEVICE
from memlab.vgpu.cards import Card
from memlab.vgpu.mode import VirtualMode, compiled_code, engine_device, prim_device
from memlab.vgpu.scratch import MATMULS, scratch


class VirtualMemory:
    """Blocks for storages and for what kernels need beside them; the counters of the card's allocator."""

    def __init__(self, card: Card):
        self.card = card
        self.blocks = _allocator(card)
        self._workspaces: dict[bool, Block] = {}

    def read_and_reset_peak(self) -> tuple[int, int]:
        """Bytes allocated now and at most since the last call."""
        peak = self.blocks.peak_allocated
        self.blocks.peak_allocated = self.blocks.allocated
        return self.blocks.allocated, peak

    def out_of_memory(self, asked: int) -> str:
        """What PyTorch says on the card when this allocation does not fit."""
        return cuda_message(
            asked,
            capacity=self.card.capacity,
            context=self.card.context,
            reserved=self.blocks.reserved,
            allocated=self.blocks.allocated,
        )

    def run_kernel(self, func, args, out, in_backward: bool) -> None:
        """Allocate what an operator needs beside its results."""
        if func.overloadpacket in MATMULS and in_backward not in self._workspaces:
            # One for the thread of the forward pass and one for the backward's; they stay.
            self._workspaces[in_backward] = self.blocks.allocate(self.card.cublas_workspace)
        for block in [self.blocks.allocate(size) for size in scratch(self.card, func, args, out)]:
            self.blocks.release(block)


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


class VirtualTracker(Tracker):
    """The tracker of a prediction. It must be on in every step: only it sees what is allocated."""

    is_real = False

    def __init__(self, memory: VirtualMemory, mode: VirtualMode):
        super().__init__(DEVICE, allocator=memory)
        self._memory = memory
        self._mode = mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is prim_device:  # half of all that is dispatched, so it is answered at once
            return engine_device(args[0])
        self._types = types
        if not types and not (kwargs and "device" in kwargs):  # the host's own affair
            return self._mode.run(func, types, args, kwargs or {})
        return self._see_operator(func, args, kwargs or {})

    def _call(self, func, args, kwargs):
        self._memory.read_and_reset_peak()  # what was freed since the last operator is gone from this one's peak
        return self._mode.run(func, self._types, args, kwargs)

    def _see_workspace(self, func, args, out, first: int) -> None:
        try:
            self._memory.run_kernel(func, args, out, self._phase is Phase.BACKWARD)
        except OutOfRoom as error:
            self._refuse(error.asked)
        super()._see_workspace(func, args, out, first)

    def _enter_root(self, module) -> None:
        if any(part._compiled_call_impl is not None for part in module.modules()) or hasattr(module, "_orig_mod"):
            raise compiled_code()
        super()._enter_root(module)

    def _take(self, record) -> None:
        try:
            record.block = self._memory.blocks.allocate(record.nbytes)
        except OutOfRoom as error:
            self._refuse(error.asked)
        self._count_slack(record, 1)

    def _give(self, record) -> None:
        if record.block is not None:
            self._count_slack(record, -1)  # before the block merges with its neighbours
            self._memory.blocks.release(record.block)
            record.block = None

    def _count_slack(self, record, sign: int) -> None:
        """Count what a block is larger than its storage, at once, so that the sum is right at every moment."""
        slack = sign * (record.block.size - record.nbytes) if record.block is not None else 0
        if slack and self._recording:
            self._resize(self._workspace, self._workspace.nbytes + slack)
        elif slack:
            self._workspace.nbytes += slack
            self.live += slack

    def _refuse(self, asked: int) -> NoReturn:
        blocks = self._memory.blocks
        self.failed = replace(self._failure(asked), in_use=blocks.allocated, limit=blocks.limit)
        raise BudgetExceeded(self._memory.out_of_memory(asked))
