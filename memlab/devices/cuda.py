"""One CUDA card, as a run sees it."""

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from memlab.tracking import Tracker
from memlab.tracking.randomness import SEED


class Cuda:
    """One CUDA card. Its caching allocator's own peak is the truth."""

    source = "measured"
    takes_turns = True
    notes = ()
    guesses = ()

    def __init__(self, device: torch.device):
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._last = 0

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return torch.cuda.get_device_name(self.device)

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

    def running(self) -> AbstractContextManager:
        """Nothing special."""
        return nullcontext()

    def start_step(self) -> None:
        """Forget the peak of the step before."""
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak_allocated(self) -> int | None:
        """The most bytes in live blocks since ``start_step``."""
        return torch.cuda.max_memory_allocated(self.device)

    def peak_reserved(self) -> int | None:
        """The most bytes held from the driver since ``start_step``."""
        return torch.cuda.max_memory_reserved(self.device)

    def read_and_reset_peak(self) -> tuple[int, int]:
        """Bytes allocated now and at most since the last call."""
        counters = torch.cuda.memory_stats_as_nested_dict(self.device)["allocated_bytes"]["all"]
        torch.cuda.reset_peak_memory_stats(self.device)
        current, peak = counters["current"], counters["peak"]
        # A peak no higher than what was allocated at the last call may be that very moment, before later frees.
        peak = peak if peak > self._last else current
        self._last = current
        return current, peak

    def set_budget(self, budget: int | None) -> None:
        """Let the allocator hold at most ``budget`` bytes; None gives the whole card back."""
        total = torch.cuda.get_device_properties(self.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (budget or total) / total), self.device)

    def release(self) -> None:
        """Drop garbage cycles, and give cuBLAS's workspaces and cached blocks back: the next run starts cold."""
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
