"""What a run asks of the device that it trains on: its name, its allocator's counters, a limit, a tracker."""

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from memlab.errors import BadValue
from memlab.tracker import Tracker


class Device(Protocol):
    """What a run asks of a device. :class:`Cpu`, :class:`Cuda` and :class:`memlab.vgpu.VirtualGpu` answer."""

    source: str  # "measured" or "predicted"
    device: torch.device  # what train is given

    @property
    def name(self) -> str:
        """The name that pictures carry."""

    def tracker(self, budget: int | None) -> Tracker:
        """The tracker of a run. A budget of so many bytes is for it to keep where the device cannot."""

    def tracks_every_step(self, budget: int | None) -> bool:
        """Whether a step without the tracker would go unseen."""

    def running(self) -> AbstractContextManager:
        """The context in which ``train`` runs."""

    def start_step(self) -> None:
        """Forget the peak of the step before."""

    def peak_allocated(self) -> int | None:
        """The most bytes allocated since ``start_step``; None where nobody counts."""

    def peak_reserved(self) -> int | None:
        """The most bytes held from the driver since ``start_step``; None where there is no cache."""

    def set_budget(self, budget: int | None) -> None:
        """Limit the device's allocator to so many bytes, where it has one; None gives the whole device back."""

    def release(self) -> None:
        """Free what the run left behind."""


class Cpu:
    """The host. It has no allocator that counts, so only an X-ray knows a step's peak."""

    source = "measured"
    device = torch.device("cpu")

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'' if threads == 1 else 's'}"

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


class Cuda:
    """One CUDA card. Its caching allocator's own peak is the truth."""

    source = "measured"

    def __init__(self, device: torch.device):
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self._last = 0

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return torch.cuda.get_device_name(self.device)

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


def open_device(device: str | torch.device | None) -> Cpu | Cuda:
    """The device to measure on: the one named, else CUDA where there is one, else the CPU.

    Raises:
        BadValue: for a device that this machine lacks or that memlab cannot measure.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    legal = "'cpu', 'cuda' or 'cuda:1'"
    try:
        device = torch.device(device)
    except RuntimeError:
        raise BadValue(f"device {device!r} is not a device that torch knows: give {legal}.") from None
    if device.type == "cpu":
        return Cpu()
    if device.type != "cuda":
        raise BadValue(f"device {str(device)!r} cannot be measured: give {legal}.")
    if (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise BadValue(
            f"device {str(device)!r} is not here, torch sees {found} CUDA devices: give 'cpu' or leave it out."
        )
    return Cuda(device)
