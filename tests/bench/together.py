"""All techniques at once against the float32 baseline: memory, time a token, held-out loss after the same tokens."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from memlab import measure, predict
from memlab.data import batches
from memlab.nets import GPT
from memlab.sizes import SIZES
from memlab.units import format_bytes
from tests.loops.matrix.nets import chunked_loss
from tests.loops.matrix.training import train

HELD_OUT_BATCHES = 8


@dataclass(frozen=True)
class Setting:
    """The size of the comparison; ``parts`` is the number of parts that the lean loop cuts a batch into."""

    size: str
    batch_size: int
    parts: int
    steps: int


ON_A_GPU = Setting("gpu", batch_size=64, parts=16, steps=150)
ON_A_CPU = Setting("ci", batch_size=16, parts=4, steps=40)


def loop(device, *, setting: Setting, lean: bool, keep=None) -> Iterator[torch.Tensor]:
    """The baseline, or autocast, fused attention, checkpoints, chunked loss, accumulation and fused AdamW."""
    size, parts = SIZES[setting.size], setting.parts if lean else 1
    model = GPT(
        depth=size.depth, width=size.width, heads=size.heads, context=size.context, checkpoint_every=1 if lean else 0
    )
    if keep is not None:
        keep.append(model)
    data = batches(setting.batch_size // parts, size.context)

    def forward() -> torch.Tensor:
        tokens, targets = (tensor.to(device) for tensor in next(data))
        return chunked_loss(model, tokens, targets) if lean else model(tokens, targets)

    how = {"precision": "bf16", "optimizer": "AdamW fused"} if lean else {"precision": "fp32", "optimizer": "AdamW"}
    yield from train(model, forward, device, **how, attention="default" if lean else "math", accumulate=parts)


def figures() -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure), on the GPU if there is one, else small on the CPU."""
    on_gpu = torch.cuda.is_available()
    device, setting = (torch.device("cuda"), ON_A_GPU) if on_gpu else (torch.device("cpu"), ON_A_CPU)
    base, lean = (partial(loop, setting=setting, lean=lean) for lean in (False, True))
    peaks = [measure(train, steps=3, device=device).peak_allocated for train in (base, lean)]
    yield "all techniques: peak", "", " to ".join(map(format_bytes, peaks))
    yield "all techniques: times less memory", "40 on a GPU", f"{peaks[0] / peaks[1]:.1f}"
    told = [predict(train, gpu="H200").peak_allocated for train in (base, lean)]
    yield "the same, predicted for an H200", "", f"{told[0] / told[1]:.1f}"
    (base_seconds, base_loss), (lean_seconds, lean_loss) = (_train(train, device, setting) for train in (base, lean))
    yield "all techniques: time for a token", "no worse", f"{lean_seconds / base_seconds:.2f} times the baseline's"
    losses = f"{base_loss:.4f} and {lean_loss:.4f}, {lean_loss / base_loss - 1:+.2%}"
    yield f"held-out loss after {setting.steps} steps", "within 1%", losses


def _train(train, device: torch.device, setting: Setting) -> tuple[float, float]:
    """Seconds of a step, and the held-out loss at the end."""
    kept: list[GPT] = []
    torch.manual_seed(0)
    generator = train(device, keep=kept)
    for _ in range(3):
        loss = next(generator)
    loss.item()  # waits for the device
    begun = time.perf_counter()
    for _ in range(setting.steps - 3):
        loss = next(generator)
    loss.item()
    seconds = (time.perf_counter() - begun) / (setting.steps - 3)
    return seconds, _held_out(kept[0], device, setting)


def _held_out(model: GPT, device: torch.device, setting: Setting) -> float:
    data = batches(16, SIZES[setting.size].context, split="held-out", seed=1)
    with torch.no_grad():
        pairs = (next(data) for _ in range(HELD_OUT_BATCHES))
        losses = [model(tokens.to(device), targets.to(device)).item() for tokens, targets in pairs]
    return sum(losses) / len(losses)
