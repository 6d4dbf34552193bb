"""One virtual card, as a run sees its device."""

from collections.abc import Iterator
from contextlib import contextmanager

from memlab.devices.base import Device
from memlab.vgpu import backend
from memlab.vgpu.cards import find_card
from memlab.vgpu.memory import VirtualMemory, VirtualTracker
from memlab.vgpu.mode import VirtualMode, names_cuda

# How a PyTorch without CUDA, or without a driver, answers code that names it.
_NO_CUDA = ("Torch not compiled with CUDA", "not linked with support for cuda", "Found no NVIDIA driver")


class VirtualGpu(Device):
    """A card that is not there. See :class:`memlab.devices.Device` for what it answers.

    Args:
        name: of the card, as in ``"T4"``.

    Raises:
        BadValue: for an unknown card.
        NoVirtualGpu: where this PyTorch cannot carry it.
    """

    source = "predicted"
    computes = False
    device = backend.DEVICE

    def __init__(self, name: str):
        self.card = find_card(name)
        backend.register()
        self._mode = VirtualMode(self.card)
        self._memory = VirtualMemory(self.card)

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return self.card.name

    def tracker(self, budget: int | None) -> VirtualTracker:
        """The tracker of a run on this card, which starts empty; the card's allocator keeps the budget."""
        self._memory = VirtualMemory(self.card)
        return VirtualTracker(self._memory, self._mode)

    def tracks_every_step(self, budget: int | None) -> bool:
        """Always: only the tracker sees what is allocated."""
        return True

    @contextmanager
    def running(self) -> Iterator[None]:
        """The context in which ``train`` runs: tensors on the card can be made and used."""
        try:
            with self._mode:
                yield
        except (AssertionError, RuntimeError) as error:
            if any(words in str(error) for words in _NO_CUDA):
                raise names_cuda("cuda", error) from error
            raise

    def start_step(self) -> None:
        """Nothing to reset: the tracker sees every step."""

    def peak_allocated(self) -> None:
        """None: the tracker knows."""

    def peak_reserved(self) -> int:
        """The most bytes held from the driver so far."""
        return self._memory.blocks.peak_reserved

    def set_budget(self, budget: int | None) -> None:
        """Let the allocator hold at most ``budget`` bytes; None gives the whole card back."""
        self._memory.blocks.limit = self.card.room if budget is None else min(budget, self.card.room)

    def release(self) -> None:
        """Give real models back the weights that they had before they moved to the card."""
        self._mode.undo.close()
