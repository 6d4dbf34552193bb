"""The host, as a run sees it."""

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from memlab.tracking import Tracker


class Cpu:
    """The host. It has no allocator that counts, so only an X-ray knows a step's peak."""

    source = "measured"
    takes_turns = True
    notes = ()
    guesses = ()
    device = torch.device("cpu")

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'' if threads == 1 else 's'}"

    def occupied(self, *belongings: Any) -> AbstractContextManager:
        """Nothing to prepare."""
        return nullcontext()

    def tracker(self, budget: int | None) -> Tracker:
        """A tracker that refuses what is past the budget."""
        return Tracker(self.device, budget=budget)

    def tracks_every_step(self, budget: int | None) -> bool:
        """With a budget: only the tracker can refuse an allocation."""
        return budget is not None

    def running(self) -> AbstractContextManager:
        """Nothing special."""
        return nullcontext()

    def start_step(self) -> None:
        """Nothing to reset."""

    def peak_allocated(self) -> int | None:
        """None: nobody counts."""
        return None

    def peak_reserved(self) -> int | None:
        """None: there is no cache."""
        return None

    def set_budget(self, budget: int | None) -> None:
        """Nothing to set: the tracker keeps the budget."""

    def release(self) -> None:
        """Drop what only garbage cycles keep alive."""
        gc.collect()
