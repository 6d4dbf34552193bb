"""One virtual card, as a run sees its device."""

import gc
from contextlib import AbstractContextManager

import torch

from memlab.vgpu import backend
from memlab.vgpu.cards import find_card
from memlab.vgpu.memory import VirtualMemory, VirtualTracker
from memlab.vgpu.mode import VirtualMode
from memlab.vgpu.patches import swap_fake


class VirtualGpu:
    """A card that is not there. See :class:`memlab.device.Cpu` for what a device can be asked."""

    source = "predicted"
    device = backend.DEVICE

    def __init__(self, name: str):
        self.card = find_card(name)
        backend.register()
        self._mode = VirtualMode(self.card)
        self.allocator = VirtualMemory(self.card, self.card.room)

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return self.card.name

    def tracker(self) -> VirtualTracker:
        """The tracker of a run on this card."""
        return VirtualTracker(self.allocator)

    def running(self) -> AbstractContextManager:
        """The context in which ``train`` runs."""
        return self._mode

    def start_step(self) -> None:
        """Nothing to reset: the tracker sees every step."""

    def peak_reserved(self) -> int:
        """The most bytes held from the driver so far."""
        return self.allocator.blocks.peak_reserved

    def set_budget(self, budget: int | None) -> None:
        """Let the allocator hold at most ``budget`` bytes; None gives the whole card back."""
        self.allocator.blocks.limit = self.card.room if budget is None else min(budget, self.card.room)

    def release(self) -> None:
        """Give real models back the weights that they had before they moved to the card."""
        for tensor, original in reversed(self._mode.moved):
            swap_fake(tensor, original)
        self._mode.moved.clear()
        gc.collect()
