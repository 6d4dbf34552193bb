"""Predictions against recordings. ``python -m tests.accuracy`` prints the sums; ``--write`` puts them into a page.

A row for each family of loops goes into a file beside the recordings. All of it takes many minutes; ``python -m
tests.accuracy NAME`` compares the cases with NAME in their names alone, and prints each.

A recording is compared with predictions by the PyTorch (its minor version) that made it; rows of other versions stay as
they were. For comparison, each case also gets what people use in the place of a prediction: tensor bytes
rounded to 512 (the rule of PyTorch's MemTracker), and 16 bytes a parameter (AdamW in float32, and what ``accelerate``
estimates).
"""

import argparse
import csv
import re
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from memlab.allocator import rounded
from memlab.errors import Unpredictable
from memlab.run import Run
from memlab.trace import Category, Trace
from memlab.vgpu import CARDS
from memlab.vgpu.convolutions.asking import UNKNOWN
from memlab.vgpu.gpu import VirtualGpu
from tests.loops.case import Case
from tests.loops.cases import all_cases
from tests.readme import written
from tests.record.recorder import allocator_settings, read, recordings_in

RECORDINGS = Path(__file__).with_name("recordings")
KNOWN = RECORDINGS / "known.toml"  # misses, each with the operator that explains it
ROWS = RECORDINGS / "accuracy.csv"
PAGE = Path(__file__).with_name("EVIDENCE.md")
STEPS = 3  # of the recorded ones, too
COUNTS = ("cases", "equal", "within 0.1%", "reserved within 1%", "verdicts right")
WORST = ("worst", "reserved worst", "MemTracker's rule: worst", "16 bytes a parameter: worst")
FIELDS = ("card", "torch", "loops", *COUNTS, *WORST)

Bytes = tuple[int, int]  # peak allocated, peak reserved


@dataclass(frozen=True)
class Row:
    """One case on one card: bytes recorded and predicted, and what was said where memory ran out, else ``""``."""

    name: str
    family: str
    holdout: bool
    recorded: Bytes
    predicted: Bytes
    said: str
    predicted_said: str
    estimates: dict[str, int]

    @property
    def fits(self) -> bool:
        """True if there are peaks to compare, because memory ran out on neither side."""
        return not (self.said or self.predicted_said)

    @property
    def verdict(self) -> bool:
        """True if memory runs out on both sides with the same words, or on neither."""
        return masked(self.said) == masked(self.predicted_said)

    @property
    def error(self) -> float:
        """Of the peak allocated."""
        return self.predicted[0] / self.recorded[0] - 1

    @property
    def reserved_error(self) -> float:
        """Of the peak reserved."""
        return self.predicted[1] / self.recorded[1] - 1

    @property
    def equal(self) -> bool:
        """True if the prediction is right: the verdict, and every byte of the peak where memory suffices."""
        return self.verdict and (not self.fits or self.recorded[0] == self.predicted[0])

    @property
    def holds_reserved(self) -> bool:
        """True if the peak reserved is within 3% of the recorded one, or there is none to compare."""
        return not self.fits or abs(self.reserved_error) <= 0.03


def masked(message: str) -> str:
    """An out-of-memory message without what no prediction knows: addresses and numbers of processes."""
    return re.sub(r"0x[0-9a-f]+|(?<=Process )\d+", "...", message.partition("\nException raised")[0])


def card_of(recording: dict[str, Any]) -> str:
    """The card that a recording was made on, by the device's name.

    Raises:
        LookupError: for a device that is none of the cards.
    """
    for card in CARDS.values():
        if recording["device"] in (card.driver_name, card.name):
            return card.name
    raise LookupError(f"{recording['device']} is no card that memlab knows: add it to memlab/vgpu/cards.py.")


def minor(version: str) -> str:
    """``"2.13"`` for ``"2.13.0+cu130"``."""
    return ".".join(version.split(".")[:2])


def of_this_torch(folder: Path = RECORDINGS) -> list[dict[str, Any]]:
    """The recordings that the PyTorch in use can be held to."""
    return [one for one in map(read, recordings_in(folder)) if minor(one["torch"]) == minor(torch.__version__)]


def everything(name: str) -> bool:
    """Return True: every case is compared."""
    return True


def in_turn(number: int, count: int) -> Callable[[str], bool]:
    """Return a function that is True for the cases to compare on card ``number`` of ``count``: each on one of them."""
    return lambda name: zlib.crc32(name.encode()) // 3 % count == number  # // 3: what is held out is spread, too


def rows(
    recording: dict[str, Any], wanted: Callable[[str], bool] = everything, left_out: Counter[str] | None = None
) -> Iterator[Row]:
    """Each case that was recorded, predicted. ``left_out`` counts why others are not."""
    card, left_out = card_of(recording), Counter() if left_out is None else left_out
    known = {case.name: case for case in all_cases()}
    for name, case in recording["cases"].items():
        if not wanted(name):
            continue
        if "error" in case:
            left_out["not recorded"] += 1
        elif name not in known:
            left_out["without its library"] += 1
        elif (trace := predicted(known[name], card)) is None:
            left_out["recorded, not predicted"] += 1
        elif UNKNOWN.sentence in trace.notes:
            left_out["without cuDNN's answers"] += 1
        else:
            yield _row(known[name], case, trace)


def _row(case: Case, recorded: dict[str, Any], trace: Trace) -> Row:
    peaks = recorded["peaks"][:STEPS] or [[0, 0]]
    return Row(
        name=case.name,
        family=case.family,
        holdout=recorded["holdout"],
        recorded=(max(allocated for allocated, _ in peaks), max(reserved for _, reserved in peaks)),
        predicted=(max(step.peak_allocated for step in trace.steps), trace.peak_reserved or 0),
        said=recorded.get("message", "out of memory") if recorded["oom"] else "",
        predicted_said=trace.oom.message if trace.oom else "",
        estimates=estimates(trace),
    )


@cache
def _gpu(card: str) -> VirtualGpu:
    return VirtualGpu(card)


def predicted(case: Case, card: str) -> Trace | None:
    """The prediction of one case of the matrix; None for code that is compiled, which no prediction follows."""
    gpu = _gpu(card)
    try:
        with allocator_settings(case.allocator, gpu):
            return Run(case.made()[0], case.settings, gpu, steps=STEPS).complete()
    except Unpredictable:
        if "compile" in case.name:
            return None
        raise


def estimates(trace: Trace) -> dict[str, int]:
    """Return the peaks that common rules of thumb estimate, in bytes; empty where no weight is trained."""
    weights = max(trace.timeline.get(Category.PARAMETER, [0]))
    if not weights:
        return {}
    events = [event for event in trace.events if event.category is not Category.WORKSPACE]
    live = peak = sum(count for category, count in trace.start.items() if category is not Category.WORKSPACE)
    for event in events:
        live += rounded(event.bytes) if event.bytes > 0 else -rounded(-event.bytes)
        peak = max(peak, live)
    return {"MemTracker's rule": peak, "16 bytes a parameter": 4 * weights}


def known_misses(card: str, file: Path = KNOWN) -> set[str]:
    """The cases that are known to be wrong on a card with the PyTorch in use."""
    place = f"{card} {minor(torch.__version__)}"
    listed = tomllib.loads(file.read_text()).get("miss", []) if file.exists() else []
    return {case for miss in listed if place in miss["on"] for case in miss["cases"]}


def shortfalls(found: list[Row]) -> list[str]:
    """Return where these cases, known misses among them, fall short of the goal, a sentence each."""
    fitting = [row for row in found if row.fits]
    shares = (
        ("equal to the byte", 0.90, [row.equal for row in fitting]),
        ("within 0.1%", 0.99, [abs(row.error) <= 0.001 for row in fitting]),
        ("within 0.5%", 1.0, [abs(row.error) <= 0.005 for row in fitting]),
        ("reserved within 1%", 0.95, [abs(row.reserved_error) <= 0.01 for row in fitting]),
        ("reserved within 3%", 1.0, [row.holds_reserved for row in fitting]),
    )
    return [f"{_share(right)} are {what}, {goal:.0%} should be" for what, goal, right in shares if _below(right, goal)]


def complaints(found: list[Row], known: set[str]) -> list[str]:
    """Return what is wrong and not known, or known and not wrong any more, a sentence each."""
    said = []
    for row in found:
        if row.name in known:
            said += [f"{row.name} is right: take it off known.toml"] if row.equal and row.holds_reserved else []
        elif not row.verdict:
            said.append(f"{row.name}: {_words(row.said)}, predicted {_words(row.predicted_said)}")
        elif not row.equal:
            said.append(f"{row.name}: {row.error:+.4%}, and known.toml does not say why")
        elif not row.holds_reserved:
            said.append(f"{row.name}: reserved {row.reserved_error:+.4%}, and known.toml does not say why")
    return said


def _below(right: list[bool], goal: float) -> bool:
    return bool(right) and sum(right) < goal * len(right)


def _share(right: list[bool]) -> str:
    return f"{sum(right)} of {len(right)}"


def _words(said: str) -> str:
    return f"'{masked(said)}'" if said else "fits"


def families(results: Iterable[tuple[dict[str, Any], list[Row]]]) -> Iterator[dict[str, str]]:
    """Of recordings and their cases, a row for each card, PyTorch and family of loops: texts, by ``FIELDS``."""
    for recording, found in results:
        card = recording["device"] + (" (stand-in)" if "stand-in" in recording["source"] else "")
        for family in dict.fromkeys(row.family for row in found):
            some = [row for row in found if row.family == family]
            yield {"card": card, "torch": minor(recording["torch"]), "loops": family, **_counts(some), **_worst(some)}


def _counts(some: list[Row]) -> dict[str, str]:
    fitting = [row for row in some if row.fits]
    counts = (
        len(some),
        sum(row.equal for row in fitting),
        sum(abs(row.error) <= 0.001 for row in fitting),
        sum(abs(row.reserved_error) <= 0.01 for row in fitting),
        sum(row.verdict for row in some),
    )
    return dict(zip(COUNTS, map(str, counts), strict=True))


def _worst(some: list[Row]) -> dict[str, str]:
    fitting = [row for row in some if row.fits]
    rules = [
        [row.estimates[name] / row.recorded[0] - 1 for row in fitting if row.estimates]
        for name in ("MemTracker's rule", "16 bytes a parameter")
    ]
    errors = ([row.error for row in fitting], [row.reserved_error for row in fitting], *rules)
    worst = (max(some, key=abs, default=None) for some in errors)
    return dict(zip(WORST, ("" if error is None else f"{error:+.2%}" for error in worst), strict=True))


def table(rows_of_families: Iterable[Mapping[str, str]]) -> str:
    """The sums in Markdown: a row for each card and PyTorch."""
    given = list(rows_of_families)
    lines = ["| " + " | ".join(["card", "torch", *COUNTS, *WORST]) + " |", "|---|---|" + "--:|" * len(COUNTS + WORST)]
    for card, torch_version in dict.fromkeys((row["card"], row["torch"]) for row in given):
        some = [row for row in given if (row["card"], row["torch"]) == (card, torch_version)]
        sums = [f"{sum(int(row[name]) for row in some):,}" for name in COUNTS]
        worst = [max((row[name] for row in some), key=_percent) for name in WORST]
        lines.append("| " + " | ".join([card, torch_version, *sums, *worst]) + " |")
    return "\n".join(lines)


def _percent(text: str) -> float:
    return abs(float(text.rstrip("%") or 0))


def write(fresh: list[dict[str, str]], file: Path = ROWS, page: Path = PAGE) -> None:
    """Put the rows into the file, where those of other versions of PyTorch stay, and the sums of all into the page."""
    versions = {row["torch"] for row in fresh}
    with file.open(encoding="utf-8", newline="") as text:
        kept = [row for row in csv.DictReader(text) if row["torch"] not in versions]
    every = sorted([*kept, *fresh], key=lambda row: [row[name] for name in FIELDS[:3]])
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)
    page.write_text(written(page.read_text(encoding="utf-8"), "accuracy", table(every)), encoding="utf-8")


def wrong_in_turn(holdout: bool) -> list[str]:
    """Return what is wrong and not known in the held out or the open cases, each compared on one card."""
    recordings, said = of_this_torch(), []
    for number, recording in enumerate(recordings):
        held_out = {name for name, case in recording["cases"].items() if case["holdout"]}
        mine = in_turn(number, len(recordings))
        found = list(rows(recording, lambda name, mine=mine, out=held_out: mine(name) and (name in out) is holdout))
        card = card_of(recording)
        said += [f"{card}: {complaint}" for complaint in complaints(found, known_misses(card))]
    return said


def main() -> None:
    """Print some cases; or the sums of all, with ``--write`` keep them, and then what the goal does not allow."""
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description="Compare predictions and recordings.")
    parser.add_argument("name", nargs="?", help="a part of the names of the cases to compare (default: all)")
    parser.add_argument("--write", action="store_true", help=f"put the sums of all into {PAGE.name} and {ROWS.name}")
    options = parser.parse_args()
    if options.name is None:
        _compare_all(writes=options.write)
        return
    for recording in of_this_torch():
        for row in rows(recording, lambda name: options.name in name):
            both = f"recorded {row.recorded}, predicted {row.predicted} (allocated, reserved)"
            print(f"{card_of(recording)}: {row.name}: {'equal' if row.equal else both}")


def _compare_all(*, writes: bool) -> None:
    left_out = Counter[str]()
    results = [(recording, list(rows(recording, left_out=left_out))) for recording in of_this_torch()]
    found_here = list(families(results))
    if writes:
        write(found_here)
    print(table(found_here))
    for why, count in left_out.items():
        print(f"{count} {why}")
    for recording, found in results:
        card = card_of(recording)
        for sentence in (*shortfalls(found), *complaints(found, known_misses(card))):
            print(f"{card}: {sentence}")


if __name__ == "__main__":
    main()
