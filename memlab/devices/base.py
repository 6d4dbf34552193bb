"""The interface between a run and its device: a name, the allocator's counters, a limit, a tracker."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from memlab.tracking import Tracker


class Device(Protocol):
    """The interface between a run and its device; the CPU, a CUDA card and the virtual GPU implement it."""

    source: str  # "measured" or "predicted"
    device: torch.device  # what train is given
    rank: int = 0  # of the processes that train together
    world_size: int = 1
    takes_turns: bool = True  # whether another run beside it would disturb it
    computes: bool = True  # or there are bytes only: no losses, no seconds

    @property
    def name(self) -> str:
        """The name that pictures carry."""

    @property
    def room(self) -> int | None:
        """Bytes that PyTorch can have of it, where that is known."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the run that its trace should carry."""
        return ()

    @property
    def guesses(self) -> tuple[str, ...]:
        """Lines of the loop that asked for a number which nobody knows."""
        return ()

    @property
    def is_lower_bound(self) -> bool:
        """True if a run takes at least the bytes that were counted, and maybe more."""
        return False

    @property
    def host_peak(self) -> int | None:
        """Bytes that tensors took of the host's memory at most, None where that is not counted."""
        return None

    def occupied(self, *belongings: Any) -> AbstractContextManager[object]:
        """The context of a whole run of a loop that can reach ``belongings``."""
        return nullcontext()

    def tracker(self, budget: int | None) -> Tracker:
        """The tracker of a run. A budget of so many bytes is for it to keep where the device cannot."""

    def tracks_every_step(self, budget: int | None) -> bool:
        """Return True if every step needs the tracker, as only it sees the allocations or can refuse one."""

    def running(self) -> AbstractContextManager[object]:
        """The context in which ``train`` runs."""
        return nullcontext()

    def clear_leftovers(self) -> None:
        """Free what an earlier error left behind, and note what else is held before the run begins."""
        return None

    def start_step(self) -> None:
        """Forget the peak of the step before."""
        return None

    def wait(self) -> None:
        """Wait until the device has done all that it was given to do."""
        return None

    def peak_allocated(self) -> int | None:
        """The most bytes allocated since ``start_step``; None where nobody counts."""
        return None

    def peak_reserved(self) -> int | None:
        """The most bytes held from the driver since ``start_step``; None where there is no cache."""
        return None

    def set_budget(self, budget: int | None) -> None:
        """Limit the device's allocator to so many bytes, where it has one; None gives the whole device back."""
        return None

    def release(self) -> None:
        """Free what the run left behind."""
        return None
