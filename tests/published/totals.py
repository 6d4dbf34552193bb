"""A total as nvidia-smi showed it: what PyTorch has reserved and, beside it, the CUDA context with the libraries' code.

The context is one constant for a card and a source: the median of what a third of the totals leaves, chosen by name;
the rest is the test.
"""

import json
import statistics
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from memlab.protocol import Train
from memlab.run import predict
from memlab.units import MIB


@dataclass(frozen=True)
class Total:
    """One published figure and what is predicted for it, in MiB; ``fitted`` if the context is fitted on it."""

    network: str
    batch: int
    published: int
    reserved: float
    fitted: bool
    notes: tuple[str, ...]

    def error(self, context: float) -> float:
        return (self.reserved + context) / self.published - 1


def report(file: Path, train: Train, context: float | None = None) -> float:
    """Predict ``train`` for every total of the file and print them side by side; what predictions remark, to stderr.

    Args:
        file: the totals, in MiB.
        train: takes ``network`` and ``batch_size``.
        context: in MiB, as fitted on other totals; else it is fitted on a third of these.

    Returns:
        The context.
    """
    data = json.loads(file.read_text())
    found = []
    for network, figures in data["MiB"].items():
        for batch, published in figures.items():
            trace = predict(train, gpu=data["card"], network=network, batch_size=int(batch))
            fitted = context is None and zlib.crc32(f"{network} {batch}".encode()) % 3 == 0
            found.append(Total(network, int(batch), published, trace.peak_reserved / MIB, fitted, trace.notes))
    if context is None:
        context = statistics.median(total.published - total.reserved for total in found if total.fitted)
    print(_table(found, context))
    print(f"\n{data['card']}, context {context:.0f} MiB; of {_summary(found, context)}")
    for network in dict.fromkeys(total.network for total in found):
        print(f"- {network}: {_summary([total for total in found if total.network == network], context)}")
    print()
    for note in sorted({note for total in found for note in total.notes}):
        print(note, file=sys.stderr)
    return context


def _table(totals: list[Total], context: float) -> str:
    """The totals beside their predictions, in Markdown."""
    rows = ["| network | batch | published MiB | predicted | | |", "|---|--:|--:|--:|--:|---|"]
    for total in totals:
        mark = "fitted" if total.fitted else ""
        row = f"| {total.network} | {total.batch} | {total.published:,} | {total.reserved + context:,.0f} "
        rows.append(f"{row}| {total.error(context):+.1%} | {mark} |")
    return "\n".join(rows)


def _summary(totals: list[Total], context: float) -> str:
    """Return a sentence on the errors of the totals that were not fitted."""
    errors = sorted(abs(total.error(context)) for total in totals if not total.fitted)
    if not errors:
        return "all fitted"
    within = ", ".join(f"{sum(error <= bound for error in errors)} within {bound:.0%}" for bound in (0.01, 0.02, 0.05))
    return (
        f"{len(errors)} that were not fitted: median {statistics.median(errors):.2%}, {within}, worst {errors[-1]:.1%}"
    )
