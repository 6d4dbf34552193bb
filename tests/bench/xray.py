"""An X-rayed step, and a step under torch's own MemTracker, against the plain step."""

import statistics
from collections.abc import Iterator

import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode

from memlab.tracking import Tracker
from tests.bench import SMALL, interleaved, ratio, train

WARM_UP, REPETITIONS = 10, 200


class Counter(TorchDispatchMode):
    """Counts operators."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def figures(device: torch.device) -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure): how many times a plain step's time each way of watching takes."""
    plain, ours, theirs = (train(device, **SMALL) for _ in range(3))
    tracker, mem_tracker, counter = Tracker(device), MemTracker(), Counter()

    def under(mode, generator):
        with mode:
            return next(generator)

    def xray():
        loss = under(tracker, ours)
        tracker.xray()
        loss.item()

    def their_way():
        mem_tracker.reset_mod_stats()  # or it refuses a second step
        under(mem_tracker, theirs).item()

    # Each asks for its loss, which on a GPU waits for the step's end.
    calls = {"plain": lambda: next(plain).item(), "X-ray": xray, "MemTracker": their_way}
    interleaved(calls, WARM_UP)
    under(counter, plain)
    seconds = interleaved(calls, REPETITIONS)
    plain_seconds = seconds["plain"]
    step = f"a step of {counter.count} small operators"
    yield f"plain: {step}", "", f"{1000 * statistics.median(plain_seconds):.2f} ms"
    yield f"X-ray / plain: {step}", "under 2.5", f"{ratio(seconds['X-ray'], plain_seconds):.2f}"
    yield f"MemTracker / plain: {step}", "", f"{ratio(seconds['MemTracker'], plain_seconds):.2f}"
