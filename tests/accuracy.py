"""Predictions against recordings. ``python -m tests.accuracy`` prints the table, ``--write`` puts it into a README.

For comparison, each case also gets what people use in the place of a prediction: tensor bytes rounded to 512 (the
rule of PyTorch's MemTracker), and 16 bytes a parameter (AdamW in float32, and what ``accelerate`` estimates).
"""

import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memlab.allocator import rounded
from memlab.record.case import Case
from memlab.record.cases import all_cases
from memlab.record.recorder import allocator_settings, read, recordings_in
from memlab.run import Run
from memlab.trace import Category, Trace
from memlab.vgpu import CARDS
from memlab.vgpu.gpu import VirtualGpu
from tests.readme import between

RECORDINGS = Path(__file__).with_name("recordings")
README = Path(__file__).parents[1] / "memlab" / "vgpu" / "README.md"
CONVOLUTIONAL = ("resnet", "timm_model")


@dataclass(frozen=True)
class Row:
    """One case: bytes recorded, predicted and estimated otherwise."""

    name: str
    loop: str
    holdout: bool
    allocated: int
    reserved: int
    predicted_allocated: int
    predicted_reserved: int
    estimates: dict[str, int]

    @property
    def error(self) -> float:
        """Of the peak allocated."""
        return self.predicted_allocated / self.allocated - 1

    @property
    def reserved_error(self) -> float:
        """Of the peak reserved."""
        return self.predicted_reserved / self.reserved - 1

    @property
    def reach(self) -> float:
        """How large ``error`` may be."""
        return 0.05 if self.loop in CONVOLUTIONAL else 0.01


def card_of(recording: dict[str, Any]) -> str:
    """The card that a recording was made on, by the device's name.

    Raises:
        LookupError: for a device that is none of the cards.
    """
    name = re.sub(r"[^a-z0-9]", "", recording["device"].lower())
    found = [card for card in CARDS if re.sub(r"[^a-z0-9]", "", card.lower().partition("-")[0]) in name]
    if len(found) > 1 and "total_memory" in recording:  # A100-40GB, A100-80GB
        found.sort(key=lambda card: abs(CARDS[card].capacity - recording["total_memory"]))
    if not found:
        raise LookupError(f"{recording['device']} is no card that memlab knows: add it to memlab/vgpu/cards.py.")
    return found[0]


def rows(recording: dict[str, Any], *, holdout: bool = True) -> Iterator[Row]:
    """Each case that was recorded and did not fail, predicted."""
    card = card_of(recording)
    known = {case.name: case for case in all_cases()}
    for name, case in recording["cases"].items():
        if "error" in case or case["oom"] or name not in known or (case["holdout"] and not holdout):
            continue
        trace = predicted(known[name], card)
        yield Row(
            name=name,
            loop=case["loop"],
            holdout=case["holdout"],
            allocated=max(allocated for allocated, _ in case["peaks"]),
            reserved=max(reserved for _, reserved in case["peaks"]),
            predicted_allocated=max(step.peak_allocated for step in trace.steps),
            predicted_reserved=trace.peak_reserved,
            estimates=estimates(trace),
        )


def predicted(case: Case, card: str) -> Trace:
    """The prediction of one case of the matrix."""
    gpu = VirtualGpu(card)
    with allocator_settings(case.allocator, gpu):
        return Run(case.loop, case.settings, gpu, steps=3).complete()


def estimates(trace: Trace) -> dict[str, int]:
    """What the rules that people use would say, in bytes."""
    events = [event for event in trace.events if event.category is not Category.WORKSPACE]
    live = peak = sum(count for category, count in trace.start.items() if category is not Category.WORKSPACE)
    for event in events:
        live += rounded(event.bytes) if event.bytes > 0 else -rounded(-event.bytes)
        peak = max(peak, live)
    weights = max(trace.timeline[Category.PARAMETER])
    return {"MemTracker's rule": peak, "16 bytes a parameter": 4 * weights}


def table(recordings: list[dict[str, Any]]) -> str:
    """The accuracy table, in Markdown: a row for each device, loop and estimate."""
    lines = [
        "| device | loop | cases | allocated: median | worst | of the held out | reserved: worst | MemTracker's rule: "
        "median | worst | 16 bytes a parameter: worst |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for recording in recordings:
        found = list(rows(recording))
        for loop in dict.fromkeys(row.loop for row in found):
            some = [row for row in found if row.loop == loop]
            held_out = [row for row in some if row.holdout]
            rule = [row.estimates["MemTracker's rule"] / row.allocated - 1 for row in some]
            formula = [row.estimates["16 bytes a parameter"] / row.allocated - 1 for row in some]
            cells = [
                recording["device"],
                loop,
                str(len(some)),
                _percent(statistics.median(row.error for row in some)),
                _percent(_worst(row.error for row in some)),
                _percent(_worst(row.error for row in held_out)) if held_out else "",
                _percent(_worst(row.reserved_error for row in some)),
                _percent(statistics.median(rule)),
                _percent(_worst(rule)),
                _percent(_worst(formula)),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _worst(errors) -> float:
    return max(errors, key=abs)


def _percent(error: float) -> str:
    return f"{error:+.2%}"


def write(text: str, readme: Path = README) -> None:
    """Put the table between its two marks in the README."""
    readme.write_text(between(readme.read_text(), "accuracy", text))


def main() -> None:
    """Print the table, or with ``--write`` put it into the README."""
    text = table([read(file) for file in recordings_in(RECORDINGS)])
    if "--write" in sys.argv:
        write(text)
    print(text)


if __name__ == "__main__":
    main()
