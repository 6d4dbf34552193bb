"""A total as nvidia-smi showed it: what PyTorch has reserved and, beside it, the CUDA context with the libraries' code.

The context is one constant for a card and a source: the median of what a third of the totals leaves, chosen by name;
the rest is the test.
"""

import statistics
import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Total:
    """One published figure and what is predicted for it, in MiB."""

    network: str
    batch: int
    published: int
    reserved: float
    notes: tuple[str, ...]

    @property
    def fitted(self) -> bool:
        """Whether the context is fitted on it."""
        return zlib.crc32(f"{self.network} {self.batch}".encode()) % 3 == 0

    def error(self, context: float) -> float:
        return (self.reserved + context) / self.published - 1


def fitted_context(totals: list[Total]) -> float:
    """In MiB."""
    return statistics.median(total.published - total.reserved for total in totals if total.fitted)


def table(totals: list[Total], context: float) -> str:
    """The totals beside their predictions, in Markdown."""
    rows = ["| network | batch | published MiB | predicted | | |", "|---|--:|--:|--:|--:|---|"]
    for total in totals:
        mark = "fitted" if total.fitted else ""
        row = f"| {total.network} | {total.batch} | {total.published:,} | {total.reserved + context:,.0f} "
        rows.append(f"{row}| {total.error(context):+.1%} | {mark} |")
    return "\n".join(rows)


def summary(totals: list[Total], context: float) -> str:
    """How far off those are that were not fitted."""
    errors = sorted(abs(total.error(context)) for total in totals if not total.fitted)
    within = ", ".join(f"{sum(error <= bound for error in errors)} within {bound:.0%}" for bound in (0.01, 0.02, 0.05))
    return (
        f"{len(errors)} that were not fitted: median {statistics.median(errors):.2%}, {within}, worst {errors[-1]:.1%}"
    )
