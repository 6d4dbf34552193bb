"""What a device can tell about itself, and be told: its name, its allocator's counters, a limit."""

import gc

import torch

from memlab.errors import BadValue


class Cpu:
    """The host. It has no allocator that counts, so only an X-ray knows a step's peak."""

    device = torch.device("cpu")
    allocator = None

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'' if threads == 1 else 's'}"

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

    def __init__(self, device: torch.device):
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        self.allocator = self
        self._last = 0

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return torch.cuda.get_device_name(self.device)

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
        """Drop garbage cycles and give cached blocks back to the driver."""
        gc.collect()
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
