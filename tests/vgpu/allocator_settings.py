"""Programs that give the allocator settings by themselves, and what PyTorch's CUDA build then holds of a T4.

``python -m tests.standin T4 -m tests.vgpu.allocator_settings CASE`` prints it; each needs a process of its own.
"""

import json
import os
import sys

import torch

from memlab.units import MIB

EXPANDABLE = "expandable_segments:True"
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"

# Of each case: MiB that are reserved and allocated, after each piece that is made.
SEEN = {
    "plain": [[12, 12], [32, 15]],
    "environment": [[20, 11], [20, 14]],
    "environment, after is_available": [[20, 11], [20, 14]],
    "environment, after get_device_properties": [[12, 12], [32, 15]],
    "environment, after set_device": [[12, 12], [32, 15]],
    "environment, after mem_get_info": [[12, 12], [32, 15]],
    "called": [[20, 11], [20, 14]],
    "called, then others": [[20, 11], [20, 14]],
    "divisions, then others": [[34, 34], [54, 37]],
    "on the way": [[30, 30], [50, 35], [50, 30], [50, 41], [110, 91], [110, 42], [110, 45], [170, 105], [110, 105]],
}


def told() -> list[int]:
    return [torch.cuda.memory_reserved() // MIB, torch.cuda.memory_allocated() // MIB]


def piece(mebibytes: int) -> torch.Tensor:
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device="cuda")


def on_the_way() -> list[list[int]]:
    """Plain, then expandable, then plain again."""
    kept, found = {}, []

    def make(name: str, mebibytes: int) -> None:
        kept[name] = piece(mebibytes)
        found.append(told())

    make("a", 30)
    make("b", 5)
    del kept["a"]
    torch._C._accelerator_setAllocatorSettings(EXPANDABLE)
    make("c", 25)
    make("d", 11)
    make("e", 50)
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    del kept["d"], kept["e"]
    make("f", 12)
    make("g", 3)
    make("h", 60)
    torch.cuda.empty_cache()
    return [*found, told()]


def found(case: str) -> list[list[int]]:
    """The bytes that the case of this name holds, after each piece; nothing may be on the card before."""
    if case == "on the way":
        return on_the_way()
    sizes = (33, 3) if case.startswith("divisions") else (11, 3)
    for call in ("is_available", "get_device_properties", "set_device", "mem_get_info"):
        if case.endswith(f"after {call}"):
            getattr(torch.cuda, call)(*(() if call == "is_available" else (0,)))
    if case.startswith("environment"):
        os.environ[VARIABLE] = EXPANDABLE
    elif case != "plain":
        first = "roundup_power2_divisions:4" if case.startswith("divisions") else EXPANDABLE
        torch._C._accelerator_setAllocatorSettings(first)
        if case.endswith("then others"):
            torch._C._accelerator_setAllocatorSettings("garbage_collection_threshold:0.9")
    kept, held = [], []
    for size in sizes:
        kept.append(piece(size))
        held.append(told())
    return held


if __name__ == "__main__":
    sys.stdout.write(json.dumps(found(sys.argv[1])))
