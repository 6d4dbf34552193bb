"""``python -m tests.bench.threads``: a step on the CPU with one thread and with all, quiet and beside a busy core."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from memlab.cluster.size import cores

SIZES = ({"batch_size": 8, "width": 64}, {"batch_size": 32, "width": 64}, {"batch_size": 8, "width": 512})
STEPS = 60
ROUNDS = 5


@contextmanager
def busy() -> Iterator[None]:
    """A context in which another process computes all the time."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def milliseconds(threads: int, by: str, size: dict[str, int]) -> float:
    """The median step of a run in a process of its own: ``"memlab"`` drives it, or ``"itself"``."""
    told = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-m", "tests.bench.threads", by, *map(str, size.values())]
    return float(subprocess.check_output(command, env=told | {"OMP_NUM_THREADS": str(threads)}))


def main() -> None:
    """Measure and print."""
    ways = {"one thread": (1, "itself"), "all": (cores(), "itself"), "all, under memlab": (cores(), "memlab")}
    for beside in (nullcontext, busy):
        for size in SIZES:
            with beside():
                rounds = [[milliseconds(*way, size) for way in ways.values()] for _ in range(ROUNDS)]
            medians = map(statistics.median, zip(*rounds, strict=True))
            told = (f"{name} {found:.1f} ms" for name, found in zip(ways, medians, strict=True))
            print(f"{beside.__name__:<12} {size}:", *told, sep="  ", flush=True)


def run(by: str, batch_size: str, width: str) -> float:
    """Return the milliseconds of a step, in the process that :func:`milliseconds` starts."""
    import torch

    from memlab import measure
    from tests.bench import train

    settings = {"batch_size": int(batch_size), "width": int(width), "depth": 2, "heads": 2, "context": 32}
    if by == "memlab":
        return 1000 * measure(train, steps=STEPS, device="cpu", **settings).seconds_per_step
    seconds, steps = [], train(torch.device("cpu"), **settings)
    for _ in range(STEPS):
        begun = time.perf_counter()
        float(next(steps).detach())
        seconds.append(time.perf_counter() - begun)
    return 1000 * statistics.median(seconds)


if __name__ == "__main__":
    print(run(*sys.argv[1:])) if sys.argv[1:] else main()
