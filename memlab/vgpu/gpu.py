"""One virtual card, as a run sees its device."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memlab.devices.base import Device
from memlab.vgpu.assembly import register
from memlab.vgpu.cards import find_card
from memlab.vgpu.current import Prediction
from memlab.vgpu.memory import VirtualMemory
from memlab.vgpu.mode import VirtualMode
from memlab.vgpu.names import CARD
from memlab.vgpu.patches import PATCHES
from memlab.vgpu.refusals import bare_number, scripted
from memlab.vgpu.restoring import Belongings
from memlab.vgpu.tracker import VirtualTracker


class VirtualGpu(Device):
    """A card that is not there. See :class:`memlab.devices.Device` for what it answers.

    Args:
        name: of the card, as in ``"T4"``.

    Raises:
        BadValue: for an unknown card.
        NoVirtualGpu: where this PyTorch cannot carry it.
    """

    source = "predicted"
    takes_turns = False
    computes = False
    device = CARD

    def __init__(self, name: str):
        self.card = find_card(name)
        register()
        self._prediction = Prediction(self.card, VirtualMemory(self.card))
        self._mode = VirtualMode(self._prediction)  # one for all runs: what it has learned about PyTorch stays

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return self.card.name

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the prediction had to leave out."""
        return (*self._prediction.notes, *self._prediction.memory.remarks)

    @property
    def guesses(self) -> tuple[str, ...]:
        """Lines of the loop that asked for a number which a prediction does not have."""
        return tuple(self._prediction.guessed)

    def tracker(self, budget: int | None) -> VirtualTracker:
        """The tracker of a new run on this card, which starts empty; the card's allocator keeps the budget."""
        self._prediction = self._mode.prediction = Prediction(self.card, VirtualMemory(self.card))
        if sentence := self._prediction.memory.unfollowed:
            self._prediction.note(sentence)
        return VirtualTracker(self._prediction, self._mode)

    def tracks_every_step(self, budget: int | None) -> bool:
        """Always: only the tracker sees what is allocated."""
        return True

    @contextmanager
    def occupied(self, *belongings: Any) -> Iterator[None]:
        """The context of a whole run: afterwards PyTorch and all that ``belongings`` lead to are as they were."""
        with PATCHES, self._prediction.undo:
            self._prediction.undo.callback(Belongings(*belongings).restore)
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """The context in which ``train`` runs: tensors on the card can be made and used."""
        try:
            with self._mode:
                yield
        except RuntimeError as error:
            if "TorchScript interpreter" in str(error):
                raise scripted(error) from error
            if "Cannot access accelerator device" in str(error):  # device=0, in PyTorch without CUDA
                raise bare_number(error) from error
            raise

    def start_step(self) -> None:
        """The lines that ask for unknown numbers are counted for each step."""
        self._prediction.start_step()

    def peak_allocated(self) -> None:
        """None: the tracker knows."""

    def peak_reserved(self) -> int:
        """The most bytes held from the driver so far."""
        return self._prediction.memory.peak_reserved

    def set_budget(self, budget: int | None) -> None:
        """Let the allocator hold at most ``budget`` bytes; None gives the whole card back."""
        if budget is not None:
            self._prediction.memory.allow(budget)

    def release(self) -> None:
        """Nothing is left behind."""
