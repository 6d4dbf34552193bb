"""Predicted step times beside published ones: python -m tests.published.times, with --fit to fit the efficiencies anew.

A third of the times, chosen by name, is what the efficiencies are fitted on; the rest is the test. What is compared are
ratios: of each step to the first one that the same source has for the same card.
"""

import json
import math
import statistics
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from memlab.run import Run
from memlab.vgpu import CARDS
from memlab.vgpu.gpu import VirtualGpu
from memlab.vgpu.time.estimate import Efficiency, likely_seconds
from tests.published.steps import train

FILE = Path(__file__).with_name("times.json")
TO_FIT = ("products", "unaligned", "convolutions", "depthwise", "plain", "memory")


@dataclass(frozen=True)
class Published:
    """One published step time, in seconds, and the loop that it is of."""

    source: str
    card: str
    name: str
    seconds: float
    settings: dict

    @property
    def fitted(self) -> bool:
        """True if the efficiencies are fitted on this published time."""
        return zlib.crc32(f"{self.source} {self.card} {self.name}".encode()) % 3 == 0


class Step:
    """A published step and what is predicted for it."""

    def __init__(self, published: Published):
        # Some of the cards had twice the memory of those that memlab knows.
        device = VirtualGpu(published.card, is_endless=True)
        run = Run(train, published.settings, device, steps=2)
        trace = run.complete()
        self.published, self.least, self.likely = published, trace.least_seconds, trace.likely_seconds
        self._streams, self._precision = run._tracker.clock.streams, published.settings["precision"]

    def estimate(self, efficiency: Efficiency) -> float:
        """Return the seconds that other efficiencies give."""
        _set_precision(self._precision)
        return likely_seconds(self._streams, CARDS[self.published.card].speed, efficiency)


def _set_precision(precision: str) -> None:
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")


def published() -> Iterator[Published]:
    """All published times."""
    for group in json.loads(FILE.read_text()):
        for row in group["rows"]:
            name, settings = f"{group['model']}: {row['name']}", row["settings"]
            yield Published(
                group["source"], group["card"], name, settings["batch_size"] / row["samples_per_second"], settings
            )


def ratios(steps: list[Step]) -> Iterator[tuple[Step, Step]]:
    """Each step with the first one of its source and card; of those that were not fitted."""
    firsts: dict[tuple[str, str], Step] = {}
    for step in steps:
        if not step.published.fitted:
            first = firsts.setdefault((step.published.source, step.published.card), step)
            if step is not first:
                yield step, first


def error(step: Step, first: Step) -> float:
    """By how much the predicted ratio is larger than the published one."""
    return (step.likely / first.likely) / (step.published.seconds / first.published.seconds) - 1


def fit(steps: list[Step]) -> Efficiency:
    """The efficiencies with which the fitted steps are off least, by turns and in ever smaller steps."""
    fitted = [step for step in steps if step.published.fitted]

    def off(efficiency: Efficiency) -> float:
        return sum(abs(math.log(step.estimate(efficiency) / step.published.seconds)) for step in fitted)

    best, width = Efficiency(), 1.2
    while width > 1.01:
        tries = [replace(best, **{name: getattr(best, name) * by}) for name in TO_FIT for by in (width, 1 / width)]
        better = min((one for one in tries if max(one.products, one.plain, one.memory) <= 1), key=off)
        best, width = (better, width) if off(better) < off(best) - 1e-9 else (best, width**0.5)
    return best


def main() -> None:
    steps = [Step(one) for one in published()]
    if "--fit" in sys.argv:
        print(fit(steps))
        return
    print("| card | step | published ms | at least | probably | |\n|---|---|--:|--:|--:|---|")
    for step in steps:
        times = " | ".join(f"{1000 * seconds:.0f}" for seconds in (step.published.seconds, step.least, step.likely))
        print(f"| {step.published.card} | {step.published.name} | {times} | {'fitted' * step.published.fitted} |")
    print("\n| card | step | to | published ratio | predicted | |\n|---|---|---|--:|--:|--:|")
    for step, first in ratios(steps):
        names = f"{step.published.card} | {step.published.name} | {first.published.name}"
        there, here = step.published.seconds / first.published.seconds, step.likely / first.likely
        print(f"| {names} | {there:.2f} | {here:.2f} | {error(step, first):+.0%} |")
    summary(steps)


def summary(steps: list[Step]) -> None:
    """Print how far off it is in all."""
    pairs = [(step, abs(error(step, first))) for step, first in ratios(steps)]
    tested = [abs(step.likely / step.published.seconds - 1) for step in steps if not step.published.fitted]
    cards = {step.published.card for step, _ in pairs}
    print(
        f"\n{len(pairs)} ratios on {len(cards)} cards: median {statistics.median(off for _, off in pairs):.1%} off,",
        end=" ",
    )
    print(f"worst {max(off for _, off in pairs):.0%}; {sum(off > 0.25 for _, off in pairs)} more than 25%")
    print(f"{len(tested)} times: median {statistics.median(tested):.1%} off, worst {max(tested):.0%}")
    below = [step.published.name for step in steps if step.published.seconds < step.least]
    print(f"published times below the roofline: {', '.join(below) or 'none'}")


if __name__ == "__main__":
    main()
