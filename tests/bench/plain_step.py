"""A plain step of a measured run against the same loop without memlab."""

import time
from collections.abc import Iterator, Mapping

import torch

from memlab.devices import open_device
from memlab.run import Run
from memlab.sizes import SIZES
from tests.bench import SMALL, ratio, train


def figures(device: torch.device) -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure): what driving a step costs when it is not X-rayed."""
    size = "gpu" if device.type == "cuda" else "cpu"
    large = {name: getattr(SIZES[size], name) for name in SMALL}
    for what, settings, repetitions in (("small GPT", SMALL, 1000), (f"GPT of size {size}", large, 100)):
        measured, bare = plain_steps(device, settings, repetitions)
        over = 100 * (ratio(measured, bare) - 1)
        yield f"plain measured step, {what}", "under 2%", f"{over:+.1f}% ({len(bare)} pairs of steps)"


def plain_steps(device: torch.device, settings: Mapping[str, int], repetitions: int) -> tuple[list[float], list[float]]:
    """Seconds of the steps of a measured run and of a bare loop that prints its loss, in pairs."""
    measured, bare = [], []
    generator = train(device, **settings)

    def plain():
        return float(next(generator).detach())

    with Run(train, settings, open_device(device), steps=repetitions) as run:
        steps = iter(run)
        for repetition in range(repetitions):
            times = {}
            for call in (plain, steps.__next__) if repetition % 2 else (steps.__next__, plain):
                begun = time.perf_counter()
                call()
                times[call] = time.perf_counter() - begun
            if not run.steps[-1].xrayed:
                bare.append(times.pop(plain))
                measured.append(times.popitem()[1])
    return measured, bare
