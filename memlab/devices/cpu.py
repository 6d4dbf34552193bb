"""The host, as a run sees it."""

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from memlab.devices.base import Device
from memlab.devices.threads import let_waiting_threads_sleep
from memlab.tracking import Tracker


class Cpu(Device):
    """The host. It has no allocator that counts, so only an X-ray knows a step's peak."""

    source = "measured"
    device = torch.device("cpu")

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'' if threads == 1 else 's'}"

    def occupied(self, *belongings: Any) -> AbstractContextManager[object]:
        """A run, beside other programs that compute."""
        let_waiting_threads_sleep()
        return nullcontext()

    def tracker(self, budget: int | None) -> Tracker:
        """A tracker that refuses what is past the budget."""
        return Tracker(self.device, budget=budget)

    def tracks_every_step(self, budget: int | None) -> bool:
        """With a budget: only the tracker can refuse an allocation."""
        return budget is not None

    def release(self) -> None:
        """Drop what only garbage cycles keep alive."""
        gc.collect()
