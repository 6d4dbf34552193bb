"""A CUDA card as the recorder asks it, beside what a run does."""

import subprocess
from typing import Any

import torch


def facts(device: torch.device) -> dict[str, Any]:
    """The driver, the libraries, and the card's figures; nothing of a CPU or of a card that is not there."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return {}
    properties = torch.cuda.get_device_properties(device)
    return {
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cudnn": _cudnn(),
        "total_memory": properties.total_memory,
        "capability": [properties.major, properties.minor],
        "processors": properties.multi_processor_count,
    }


def set_allocator(device: torch.device, settings: str) -> None:
    """Give the caching allocator settings, in the words of PYTORCH_ALLOC_CONF, while it is in use; those that are not
    named become what they were at first.
    """
    if device.type == "cuda":
        torch._C._accelerator_setAllocatorSettings(settings)


def keep_history(on: bool) -> None:
    """Let CUDA's caching allocator write down all that it does, from an empty page on, or stop it."""
    memory = torch.cuda.memory
    if on:
        memory._record_memory_history("all", context="alloc", stacks="all", max_entries=1_000_000, clear_history=True)
    else:
        memory._record_memory_history(None)


def history() -> dict[str, Any]:
    """Return what the allocator has written down, and its segments."""
    return torch.cuda.memory._snapshot()


def _cudnn() -> int | str | None:
    """cuDNN's version; where PyTorch refuses one that it was not built with, what it says: the run goes on."""
    try:
        return torch.backends.cudnn.version()
    except RuntimeError as error:
        return str(error).splitlines()[0]


def _driver() -> str | None:
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
