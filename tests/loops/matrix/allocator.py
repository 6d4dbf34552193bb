"""The allocator's settings, each with loops that it changes."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from memlab.units import MIB
from tests.loops.case import Case
from tests.loops.matrix.nets import gpt, mlp, resnet
from tests.loops.matrix.walls import fragmented, gpt_beside, halving, many_tensors, other_shapes

DIVISIONS = "roundup_power2_divisions:"


def cases() -> Iterator[Case]:
    """Each setting with a net, with changing sizes, and on a card that is nearly full."""
    small = {"depth": 2, "width": 256, "heads": 4, "context": 200, "vocabulary": 3000, "precision": "bf16"}
    loops: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (sizes, {}),
        (gpt, small),
        (other_shapes, {"left": 400}),
    ]
    for settings in (
        "expandable_segments:True",
        "max_split_size_mb:32",
        "max_split_size_mb:200",
        DIVISIONS + "4",
        DIVISIONS + "16",
        DIVISIONS + "[256:1,512:2,1024:4,>:8]",
        DIVISIONS + "[2:8,32:2,>:4]",
        "large_segment_size_mb:64",
        "expandable_segments:True,large_segment_size_mb:64",
        f"expandable_segments:True,{DIVISIONS}8",
        f"max_split_size_mb:64,{DIVISIONS}4",
        "max_split_size_mb:32,max_non_split_rounding_mb:100",
    ):
        for loop, values in loops:
            yield Case(loop, values, allocator=settings)
    for settings in ("expandable_segments:True", "max_split_size_mb:64"):
        yield Case(fragmented, {"wanted": 220}, allocator=settings)
        yield Case(fragmented, {"wanted": 270}, allocator=settings)
        yield Case(many_tensors, {"kib": 9500, "left": 520}, allocator=settings)
        yield Case(halving, {"left": 1000}, allocator=settings)
        yield Case(gpt_beside, {"left": 120}, allocator=settings)
    yield Case(resnet, {"precision": "bf16", "batch_size": 8}, allocator="expandable_segments:True")
    yield Case(mlp, {"width": 1024, "batch_size": 1000, "depth": 4}, allocator="max_split_size_mb:32")
    for threshold in (0.2, 0.5, 0.9):
        settings = f"garbage_collection_threshold:{threshold}"
        for fraction in (0.05, 1.0):
            yield Case(collected, {"fraction": fraction}, allocator=settings)
    yield Case(collected, {"fraction": 0.05}, allocator="garbage_collection_threshold:0.3,max_split_size_mb:64")
    yield Case(copied, {"pinned": True})
    yield Case(copied, {"pinned": False})


def sizes(device: torch.device) -> Iterator[None]:
    """Tensors of many sizes, small and large, each freed when ten more were made."""
    held: list[torch.Tensor] = []
    while True:
        for number in range(1, 120):
            size = (number * 7919) % 400 * (300_000 if number % 3 else 900) + 1
            held.append(torch.empty(size, dtype=torch.uint8, device=device))
            del held[:-10]
        yield None


def collected(device: torch.device, *, fraction: float = 0.5) -> Iterator[None]:
    """Tensors that grow in a part of the card: each needs a new segment, while the old ones lie idle."""
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    part = int(torch.cuda.get_device_properties(device).total_memory * fraction)
    try:
        while True:
            for number in range(10, 30):
                held = torch.empty(part // 300 * number, dtype=torch.uint8, device=device)
                again = torch.empty(part // 300 * (number % 4 + 1), dtype=torch.uint8, device=device)
                small = torch.empty(MIB // 2, dtype=torch.uint8, device=device)
                del held, again, small
            yield None
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def copied(device: torch.device, *, pinned: bool = False) -> Iterator[torch.Tensor]:
    """Batches from the host's memory, pinned and copied beside the work or not; activations there and back."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        batch = torch.zeros(4096, 512)
        inputs = (batch.pin_memory() if pinned else batch).to(device, non_blocking=pinned)
        with torch.autograd.graph.save_on_cpu(pin_memory=pinned):
            loss = F.mse_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()
