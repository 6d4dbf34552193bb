"""One CUDA card, as a run sees it."""

import gc
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from memlab.devices import leftovers
from memlab.devices.base import Device
from memlab.tracking import Tracker
from memlab.tracking.internals import clear_cublas_workspaces
from memlab.tracking.randomness import SEED

LITTLE = 0.01  # of the card: so much may be held before a run without a word, for the picture shows it anyway


class Cuda(Device):
    """One CUDA card. Its caching allocator's own peak is the truth."""

    source = "measured"

    def __init__(self, device: torch.device):
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._last = 0
        self._peaks = [0, 0]  # of this step, before the counters were last reset: allocated, reserved
        self._notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return torch.cuda.get_device_name(self.device)

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on the memory that was in use before the run, if it was much; else empty."""
        return self._notes

    @contextmanager
    def occupied(self, *belongings: Any) -> Iterator[None]:
        """The card's random numbers start from a seed of their own, and go on afterwards where they were."""
        before = torch.cuda.get_rng_state(self.device)
        torch.cuda.manual_seed(SEED)
        try:
            yield
        finally:
            torch.cuda.set_rng_state(before, self.device)

    def tracker(self, budget: int | None) -> Tracker:
        """A tracker that reads the allocator's counters; the allocator itself keeps the budget."""
        return Tracker(self.device, allocator=self)

    def tracks_every_step(self, budget: int | None) -> bool:
        """Never: the allocator always counts."""
        return False

    def running(self) -> AbstractContextManager[object]:
        """The card is the current one: what asks for ``"cuda"`` gets it."""
        return torch.cuda.device(self.device)

    def clear_leftovers(self) -> None:
        """On a card that is not empty, drop garbage cycles and what the last error holds, and note what stays."""
        if torch.cuda.memory_allocated(self.device):
            leftovers.clear_last_error(self.device)
            self.release()
        held = torch.cuda.memory_allocated(self.device)
        if held > LITTLE * torch.cuda.get_device_properties(self.device).total_memory:
            self._notes = (leftovers.note(self.device, held, self.name),)

    def start_step(self) -> None:
        """Forget the peak of the step before."""
        torch.cuda.reset_peak_memory_stats(self.device)
        self._peaks = [0, 0]

    def wait(self) -> None:
        """Wait for the kernels."""
        torch.cuda.synchronize(self.device)

    def peak_allocated(self) -> int | None:
        """The most bytes in live blocks since ``start_step``."""
        return max(self._peaks[0], torch.cuda.max_memory_allocated(self.device))

    def peak_reserved(self) -> int | None:
        """The most bytes held from the driver since ``start_step``."""
        return max(self._peaks[1], torch.cuda.max_memory_reserved(self.device))

    def read_and_reset_peak(self) -> tuple[int, int, int]:
        """Bytes allocated now, at most since the last call, and reserved."""
        counters = torch.cuda.memory_stats_as_nested_dict(self.device)
        allocated, reserved = counters["allocated_bytes"]["all"], counters["reserved_bytes"]["all"]
        self._peaks = [max(self._peaks[0], allocated["peak"]), max(self._peaks[1], reserved["peak"])]
        current, peak = allocated["current"], allocated["peak"]
        if peak > current:
            torch.cuda.reset_peak_memory_stats(self.device)
        # A peak no higher than what was allocated at the last call may be that very moment, before later frees.
        peak = peak if peak > self._last else current
        self._last = current
        return current, peak, reserved["current"]

    def set_budget(self, budget: int | None) -> None:
        """Let the allocator hold at most ``budget`` bytes; None gives the whole card back."""
        if budget is None and torch.cuda.get_per_process_memory_fraction(self.device) == 1.0:
            return  # once it is set, be it to 1, PyTorch says "... allowed" whenever memory runs out
        total = torch.cuda.get_device_properties(self.device).total_memory
        torch.cuda.set_per_process_memory_fraction(_fraction(budget or total, total), self.device)

    def release(self) -> None:
        """Drop garbage cycles, and give cuBLAS's workspaces and cached blocks back: the next run starts cold."""
        gc.collect()
        clear_cublas_workspaces()
        torch.cuda.empty_cache()


def _fraction(budget: int, total: int) -> float:
    """Return the fraction of ``total`` bytes that, truncated as the allocator does, allows ``budget`` bytes or more."""
    fraction = min(1.0, budget / total)
    while fraction < 1.0 and int(fraction * total) < budget:
        fraction = math.nextafter(fraction, 1.0)
    return fraction
