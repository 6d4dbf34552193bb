"""The number of ranks that this machine can run, and the backend that carries their messages."""

import os

import torch

from memlab.errors import BadValue

FEWEST = 4  # ranks that a CPU of any size may share: a mesh of two by two needs them


def backend(world_size: int, device: str | torch.device | None) -> str:
    """``"nccl"`` or ``"gloo"``: what carries the messages of so many ranks. By default NCCL where there are the GPUs.

    Raises:
        BadValue: the machine has not enough GPUs, or cores.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = _kind(device) if device is not None else "cuda" if gpus >= world_size else "cpu"
    if kind == "cuda":
        if gpus < world_size:
            found = f"{gpus} GPU{'' if gpus == 1 else 's'}"
            raise BadValue(
                f"world_size={world_size} on 'cuda' needs a GPU for each rank, for NCCL, and torch sees {found}: "
                "give fewer ranks or device='cpu', or predict."
            )
        return "nccl"
    if world_size > max(FEWEST, cores()):
        raise BadValue(
            f"world_size={world_size} is more than this machine can run, with {cores()} cores and {gpus} GPUs: "
            f"give 1 to {max(FEWEST, cores())} ranks, or predict."
        )
    return "gloo"


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(ranks: int) -> int:
    """Return the number of threads for each of ``ranks`` processes, so that together they use at most all cores."""
    return max(1, cores() // ranks)


def _kind(device: str | torch.device) -> str:
    name = str(device)
    if name not in ("cpu", "cuda"):
        raise BadValue(f"device {name!r} cannot train on several ranks: give 'cpu', or 'cuda' for one GPU a rank.")
    return name
