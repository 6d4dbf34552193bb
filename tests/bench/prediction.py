"""The time that a prediction takes, the first in a process and those after it."""

import resource
import statistics
import time
from collections.abc import Iterator
from importlib.util import find_spec

import torch

from memlab import predict
from memlab.data import batches
from memlab.lab.forecast import STEPS_TO_SHOW
from memlab.nets import GPT
from memlab.sizes import SIZES

REPETITIONS = 5
GPT2 = {"depth": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257, "batch_size": 8}


def train(device, *, batch_size, context, compiled=False, **shape) -> Iterator[torch.Tensor]:
    """A GPT under bfloat16 autocast, with AdamW; compiled as a whole if that is asked for."""
    model = GPT(context=context, **shape).to(device)
    if compiled:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, context):
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def figures() -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure)."""
    yield "predict GPT-2 small, 8 x 1024, 3 steps: the first ever", "", _once(GPT2, steps=3)
    yield "predict GPT-2 small, 8 x 1024, 3 steps: again", "1 s", _median([GPT2] * REPETITIONS, steps=3)
    size = SIZES["cpu"]
    lab = {"depth": size.depth, "width": size.width, "heads": size.heads, "context": size.context}
    moves = [lab | {"batch_size": batch_size} for batch_size in range(1, REPETITIONS + 1)]
    yield (
        "predict the lab's default as its panel does: a new batch size",
        "0.3 s",
        _median(moves, steps=STEPS_TO_SHOW),
    )
    back = [lab | {"batch_size": 3}] * REPETITIONS
    yield "predict the lab's default as its panel does: a known one", "0.3 s", _median(back, steps=STEPS_TO_SHOW)
    yield from _compiled()
    yield from _eight_billion()


def _compiled() -> Iterator[tuple[str, str, str]]:
    whole = GPT2 | {"compiled": True}
    yield "predict GPT-2 small compiled whole, 8 x 1024: the first", "30 s", _once(whole, steps=3)
    yield "predict GPT-2 small compiled whole, 8 x 1024: again", "1 s", _median([whole] * REPETITIONS, steps=3)
    others = [whole | {"batch_size": batch_size} for batch_size in (4, 6, 12)]
    yield "predict GPT-2 small compiled whole: a new batch size", "10 s", _median(others, steps=3)


def _once(settings, steps: int) -> str:
    begun = time.perf_counter()
    predict(train, gpu="A100-40GB", steps=steps, **settings)
    return f"{time.perf_counter() - begun:.2f} s"


def _median(runs, steps: int) -> str:
    seconds = []
    for settings in runs:
        begun = time.perf_counter()
        predict(train, gpu="A100-40GB", steps=steps, **settings)
        seconds.append(time.perf_counter() - begun)
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def _eight_billion() -> Iterator[tuple[str, str, str]]:
    if not find_spec("transformers"):
        return
    from tests.vgpu.test_transformers import train_eight_billion

    begun = time.perf_counter()
    predict(train_eight_billion, gpu="B200", steps=3)
    seconds, peak = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield "predict a Llama of 8 billion parameters, 3 steps", "15 s", f"{seconds:.2f} s"
    yield "host memory of this process by then", "4 GiB", f"{peak:.2f} GiB"
