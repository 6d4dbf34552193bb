"""The cost of memlab, measured beside the plain loop in one run. ``python -m tests.bench`` prints it.

Nothing here is asserted: times depend on the machine and on what else it does.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from memlab.data import batches
from memlab.nets import GPT

SMALL = {"depth": 2, "width": 64, "heads": 2, "context": 64, "batch_size": 8}


def train(device, *, depth, width, heads, context, batch_size) -> Iterator[torch.Tensor]:
    """The loop that every figure is about: a GPT, the standard library, plain SGD."""
    model = GPT(depth=depth, width=width, heads=heads, context=context).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for tokens, targets in batches(batch_size, context):
        loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def interleaved(calls: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of every call, one after the other in each repetition, so that all meet the same load."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for _ in range(repetitions):
        for name in names:
            begun = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - begun)
        names.append(names.pop(0))  # each is first, and each follows each, in turn
    return seconds


def ratio(seconds: Sequence[float], base: Sequence[float]) -> float:
    """The median of the ratios within each repetition."""
    return statistics.median(one / other for one, other in zip(seconds, base, strict=True))
