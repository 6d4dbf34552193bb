"""Out of memory: how the error is recognised, what is kept of it, and what PyTorch says on a card."""

import re
import sys
from dataclasses import dataclass

from memlab.categories import Phase
from memlab.text import message
from memlab.units import GIB, KIB, MIB, format_bytes, parse_bytes


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The allocation that did not fit.

    Attributes:
        asked: bytes that the device was asked for, None if unknown. A card's allocator asks for a segment: 20 MiB for a
            tensor of 1 to 10 MiB, otherwise the tensor's own bytes, rounded up to 2 MiB.
        in_use: bytes allocated at that moment.
        limit: bytes that were allowed, or on a predicted card all that there are; None: all that the device has.
        phase, module, op: where it happened.
        message: what PyTorch said, or on a predicted card would say.
    """

    asked: int | None
    in_use: int
    limit: int | None
    phase: Phase
    module: str
    op: str
    message: str = ""

    @property
    def sentence(self) -> str:
        """The failed allocation, in one sentence without a full stop."""
        asked = "more memory" if self.asked is None else format_bytes(self.asked)
        limit = "" if self.limit is None else f" of {format_bytes(self.limit)}"
        in_use = f"{format_bytes(self.in_use)}{limit} in use{self._rest}"
        return f"{self.place}: asked for {asked} with {in_use}"

    @property
    def place(self) -> str:
        """The failure and its place: ``"out of memory in forward at blocks.3"``."""
        where = self.module or self.op
        return f"out of memory {self.phase.place}{f' at {where}' if where else ''}"

    @property
    def _rest(self) -> str:
        """Why it did not fit although enough bytes were free; in PyTorch's words, where it said how many it holds."""
        if not self.has_enough_free:
            return ""
        idle = re.search(r"and ([\d.]*[1-9][\d.]* \S+) is reserved by PyTorch but unallocated", self.message)
        if idle is None:
            return " and the rest not free in one piece"
        return f" and {format_bytes(parse_bytes(idle[1].replace('bytes', 'B')))} reserved but unallocated"

    @property
    def has_enough_free(self) -> bool:
        """True if as many bytes were free as were asked for, so that they were not in one piece."""
        return None not in (self.asked, self.limit) and self.in_use + (self.asked or 0) <= (self.limit or 0)


# Not every library under PyTorch says it by torch.OutOfMemoryError. In order: what passes its message on,
# CUDA's runtime (a kernel's own memory), its driver, cuBLAS, cuDNN, the host's allocator.
_WORDS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if the error says that a device, or the host, had no room for an allocation."""
    torch = sys.modules.get("torch")  # without PyTorch no error is of its making
    if torch is None or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.OutOfMemoryError) or any(words in message(error) for words in _WORDS)


def out_of_memory_behind(error: BaseException) -> BaseException | None:
    """The error, or the one that it was raised from, that says so: a pipeline's stage wraps what ends it in its own."""
    behind: BaseException | None = error
    while behind is not None and not is_out_of_memory(behind):
        behind = behind.__cause__
    return behind


def asked_bytes(error: BaseException) -> int | None:
    """The size that failed, from the allocators' own words: "Tried to allocate 12.00 MiB", "allocate 96 bytes"."""
    match = re.search(r"allocate:? (\d+(?:\.\d+)?) ?(GiB|MiB|KiB|bytes)", str(error))
    return match and parse_bytes(f"{match[1]} {match[2].replace('bytes', 'B')}")


def cuda_message(
    segment: int, *, capacity: int, context: int, reserved: int, allocated: int, allowed: int | None, advice: str
) -> str:
    """Return PyTorch's message for an allocation that does not fit, on a card that no other process uses (in bytes).

    The words are those of ``DeviceCachingAllocator::malloc`` and ``reportProcessMemoryInfo`` in PyTorch's
    ``c10/cuda/CUDACachingAllocator.cpp``.

    Args:
        segment: what the allocator asked the driver for.
        capacity: what the card has.
        context: what CUDA itself takes of it.
        reserved: what the caching allocator holds.
        allocated: what of that is in live blocks.
        allowed: the most that it may hold, None where nobody set a fraction.
        advice: the last sentences, of :data:`TRY_EXPANDABLE` or :data:`IS_EXPANDABLE`.
    """
    used = context + reserved
    limit = "" if allowed is None else f"{_size(allowed)} allowed; "
    return (
        f"CUDA out of memory. Tried to allocate {_size(segment)}. GPU 0 has a total capacity of "
        f"{_size(capacity)} of which {_size(capacity - used)} is free. "
        f"Including non-PyTorch memory, this process has {_size(used)} memory in use. {limit}"
        f"Of the allocated memory {_size(allocated)} is allocated by PyTorch, and "
        f"{_size(reserved - allocated)} is reserved by PyTorch but unallocated. {advice}"
    )


TRY_EXPANDABLE = (
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)
# Since torch 2.14 or 2.15, where the setting is on.
IS_EXPANDABLE = (
    "expandable_segments is enabled. If instead the process is running out of virtual address space (VSZ), expandable "
    "segments may be over-reserving VA (each segment reserves ~9/8 of device memory, times the number of streams); "
    "reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / expandable_segments_reserve_by_class."
)


def _size(count: int) -> str:
    """Bytes as PyTorch's allocator writes them in its messages, with two decimals."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count > unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} bytes"
