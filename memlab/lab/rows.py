"""The runs of a panel so far and the predictions that were kept: a row each, what it costs and what it gives."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from memlab.lab.costs import cost
from memlab.lab.ranks import settings_of
from memlab.lab.words import setting_text
from memlab.trace import Trace

MOST_ROWS = 30


@dataclass(frozen=True)
class Row:
    """One run, or one prediction.

    Attributes:
        number: counted from 1 in the order in which they came.
        source: ``"measured"`` or ``"predicted"``.
        device: where it ran, or the card.
        model: what was predicted, where that is not what Run trains.
        settings: by name, those that the panel controls.
        peak: bytes allocated at most.
        seconds: of a step: measured, or of a prediction probably; None where it is not known.
        rate: samples a second, likewise.
        failed: whether memory ran out.
        needed: bytes that it would take then with room enough, if that is known.
    """

    number: int
    source: str
    device: str
    model: str
    settings: Mapping[str, Any]
    peak: int
    seconds: float | None
    rate: float | None
    failed: bool
    needed: int | None = None

    @property
    def kind(self) -> tuple[str, str, str]:
        """Rows can be compared that have it in common."""
        return self.source, self.device, self.model


def make_row(number: int, trace: Trace, names: Iterable[str], model: str, needed: int | None) -> Row:
    """The row of a run."""
    paid, all_settings = cost(trace), settings_of(trace)
    settings = {name: all_settings[name] for name in names if name in all_settings}
    seconds, rate = (None, None) if trace.oom else (paid.seconds, paid.rate)
    device, failed = trace.device, trace.oom is not None
    return Row(number, trace.source, device, model, settings, trace.peak_allocated, seconds, rate, failed, needed)


def add(
    rows: Sequence[Row], trace: Trace, names: Iterable[str], model: str = "", needed: int | None = None
) -> tuple[Row, ...]:
    """The rows and one more; the same prediction is kept once, and the oldest goes where there are too many."""
    row = make_row(rows[-1].number + 1 if rows else 1, trace, names, model, needed)
    if row.source == "predicted":
        rows = [other for other in rows if (other.kind, other.settings) != (row.kind, row.settings)]
    return (*rows, row)[-MOST_ROWS:]


def best(rows: Iterable[Row], budget: int | None) -> set[int]:
    """The numbers of the fastest rows within the budget: of each kind one, where there is a choice of timed ones."""
    found = set()
    for _, group in groupby(sorted(rows, key=lambda row: row.kind), key=lambda row: row.kind):
        fitting = [row for row in group if row.seconds and (budget is None or row.peak <= budget)]
        if len(fitting) > 1:
            found.add(min(fitting, key=lambda row: (-(row.rate or 0), row.seconds or 0, row.peak)).number)
    return found


def table(rows: Sequence[Row], budget: int | None) -> list[dict[str, Any]]:
    """The rows as the picture's table has them: of their settings those that differ, the best that fits marked.

    Args:
        budget: bytes.
    """
    names = rows[-1].settings if rows else ()
    varied = [name for name in names if len({str(row.settings.get(name)) for row in rows}) > 1]
    marked = best(rows, budget)
    return [_table_row(row, varied, row.number in marked) for row in rows]


def _table_row(row: Row, varied: Iterable[str], is_best: bool) -> dict[str, Any]:
    names = [name for name in varied if name in row.settings] or list(row.settings)
    where = "measured" if row.source == "measured" else f"predicted, {row.device}"
    return {
        "number": row.number,
        "settings": ", ".join(setting_text(name, row.settings[name]) for name in names),
        "what": ", ".join(filter(None, [row.model, where])),
        "peak": row.peak,
        "seconds": row.seconds,
        "rate": row.rate,
        "failed": row.failed,
        "needed": row.needed,
        "best": is_best,
    }


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV: bytes, seconds, samples a second; a column for each setting."""
    names = list(dict.fromkeys(name for row in rows for name in row.settings))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "run",
            "source",
            "device",
            "model",
            *names,
            "peak_bytes",
            "seconds",
            "samples_per_second",
            "failed",
            "needed_bytes",
        ]
    )
    for row in rows:
        settings, ends = [row.settings.get(name) for name in names], (row.failed, row.needed)
        writer.writerow(
            [row.number, row.source, row.device, row.model, *settings, row.peak, row.seconds, row.rate, *ends]
        )
    return text.getvalue()
