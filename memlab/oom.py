"""Out of memory: how the error is recognised, what is kept of it, and what PyTorch says on a card."""

import re
import sys
from dataclasses import dataclass

from memlab.categories import Phase
from memlab.units import GIB, KIB, MIB, format_bytes, parse_bytes


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The allocation that did not fit.

    Attributes:
        asked: bytes, None if unknown.
        in_use: bytes allocated at that moment.
        limit: bytes that were allowed, None: all that the device has.
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
        """What failed, in one sentence without a full stop."""
        asked = "more memory" if self.asked is None else format_bytes(self.asked)
        limit = "" if self.limit is None else f" of {format_bytes(self.limit)}"
        where = self.module or self.op
        place = f" at {where}" if where else ""
        return f"out of memory in {self.phase}{place}: asked for {asked} with {format_bytes(self.in_use)}{limit} in use"


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
    """Whether the error says that a device, or the host, had no room for an allocation."""
    torch = sys.modules.get("torch")  # without PyTorch no error is of its making
    if torch is None or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _WORDS)


def asked_bytes(error: BaseException) -> int | None:
    """The size that failed, from the allocators' own words: "Tried to allocate 12.00 MiB", "allocate 96 bytes"."""
    match = re.search(r"allocate:? (\d+(?:\.\d+)?) ?(GiB|MiB|KiB|bytes)", str(error))
    return match and parse_bytes(f"{match[1]} {match[2].replace('bytes', 'B')}")


def cuda_message(asked: int, *, capacity: int, context: int, reserved: int, allocated: int) -> str:
    """What PyTorch says on a card when an allocation does not fit (all in bytes).

    Args:
        asked: the allocation.
        capacity: what the card has.
        context: what CUDA itself takes of it.
        reserved: what the caching allocator holds.
        allocated: what of that is in live blocks.
    """
    free = max(0, capacity - context - reserved)
    return (
        f"CUDA out of memory. Tried to allocate {_size(asked)}. GPU 0 has a total capacity of "
        f"{_size(capacity)} of which {_size(free)} is free. "
        f"Of the allocated memory {_size(allocated)} is allocated by PyTorch, and "
        f"{_size(reserved - allocated)} is reserved by PyTorch but unallocated."
    )


def _size(count: int) -> str:
    """Bytes as PyTorch's allocator writes them in its messages, with two decimals."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count > unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} bytes"
