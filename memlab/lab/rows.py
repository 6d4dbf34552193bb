"""The runs of a panel so far and the predictions that were kept: a row each, what it costs and what it gives."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

from memlab.lab.costs import cost, rate_text
from memlab.lab.style import color
from memlab.lab.words import setting_text
from memlab.trace import Trace
from memlab.units import format_bytes, format_seconds

MOST_ROWS = 30
STAR = "★"


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

    @property
    def kind(self) -> tuple[str, str, str]:
        """Rows can be compared that have it in common."""
        return self.source, self.device, self.model


def make_row(number: int, trace: Trace, names: Iterable[str], model: str) -> Row:
    """The row of a run."""
    paid, all_settings = cost(trace), {**trace.settings, "world_size": trace.world_size}
    settings = {name: all_settings[name] for name in names if name in all_settings}
    seconds, rate = (None, None) if trace.oom else (paid.seconds, paid.rate)
    device, failed = trace.device, trace.oom is not None
    return Row(number, trace.source, device, model, settings, trace.peak_allocated, seconds, rate, failed)


def add(rows: Sequence[Row], trace: Trace, names: Iterable[str], model: str = "") -> tuple[Row, ...]:
    """The rows and one more; the same prediction is kept once, and the oldest goes where there are too many."""
    row = make_row(rows[-1].number + 1 if rows else 1, trace, names, model)
    if row.source == "predicted":
        rows = [other for other in rows if (other.kind, other.settings) != (row.kind, row.settings)]
    return (*rows, row)[-MOST_ROWS:]


# The name that a menu shows, and what rows are put in order by; what is not known comes last.
ORDERS: dict[str, Callable[[Row], Any]] = {
    "newest first": lambda row: -row.number,
    "lowest peak": lambda row: (row.failed, row.peak),
    "shortest step": lambda row: row.seconds or float("inf"),
    "most samples/s": lambda row: -(row.rate or 0),
    "settings": lambda row: tuple(str(value).rjust(12) for value in row.settings.values()),
}


def best(rows: Iterable[Row], budget: int | None) -> set[int]:
    """The numbers of the fastest rows within the budget: of each kind one, where there is a choice of timed ones."""
    found = set()
    for _, group in groupby(sorted(rows, key=lambda row: row.kind), key=lambda row: row.kind):
        fitting = [row for row in group if row.seconds and (budget is None or row.peak <= budget)]
        if len(fitting) > 1:
            found.add(min(fitting, key=lambda row: (-(row.rate or 0), row.seconds or 0, row.peak)).number)
    return found


def table(rows: Sequence[Row], order: str, budget: int | None) -> str:
    """The rows as HTML, ``""`` for fewer than two: of their settings those that differ.

    Args:
        order: one of :data:`ORDERS`.
        budget: bytes; the best that fits is marked.
    """
    if len(rows) < 2:
        return ""
    varied = [name for name in rows[-1].settings if len({str(row.settings.get(name)) for row in rows}) > 1]
    marked = best(rows, budget)
    ordered = sorted(sorted(rows, key=lambda row: -row.number), key=ORDERS[order])
    head = "".join(f'<th scope="col" style="{_CELL}">{_whole(name)}</th>' for name in _HEADINGS)
    body = "".join(_table_row(row, varied, row.number in marked) for row in ordered)
    within = "within the budget" if budget is not None else "of those that fit"
    note = f'<div style="color:{color("good")}">{STAR} the fastest {within}</div>' if marked else ""
    look = f"border-collapse:collapse;width:100%;font-size:13px;line-height:1.4;color:{color('ink')}"
    return f'<div style="background:{color("ground")};font-size:13px"><table style="{look}">' + (
        f'<caption style="text-align:left;font-weight:600">Runs so far</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{note}</div>"
    )


_HEADINGS = ("run", "settings", "peak", "a step", "samples/s")
_CELL = "text-align:left;padding:3px 10px 3px 0;vertical-align:top;background:none"


def _table_row(row: Row, varied: Iterable[str], is_best: bool) -> str:
    texts = [setting_text(name, row.settings[name]) for name in varied if name in row.settings]
    where = "measured" if row.source == "measured" else f"predicted, {row.device}"
    settings = escape(", ".join(texts) or "the same")
    source = escape(", ".join(filter(None, [row.model, where])))
    cells = [
        f'{settings}<div style="color:{color("quiet")};font-weight:400">{source}</div>',
        "out of memory" if row.failed else _whole(format_bytes(row.peak)),
        _whole(format_seconds(row.seconds)) if row.seconds else "",
        rate_text(row.rate) if row.rate else "",
    ]
    weight = f"font-weight:600;color:{color('good')};" if is_best else ""
    first = f'<th scope="row" style="{_CELL};font-weight:400">{_whole(f"{row.number} {STAR * is_best}".strip())}</th>'
    rest = "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells)
    return f'<tr style="{weight}border-top:1px solid {color("floor")}">{first}{rest}</tr>'


def _whole(text: str) -> str:
    return f'<span style="white-space:nowrap">{text}</span>'


def to_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV: bytes, seconds, samples a second; a column for each setting."""
    names = list(dict.fromkeys(name for row in rows for name in row.settings))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["run", "source", "device", "model", *names, "peak_bytes", "seconds", "samples_per_second", "failed"]
    )
    for row in rows:
        settings = [row.settings.get(name) for name in names]
        writer.writerow(
            [row.number, row.source, row.device, row.model, *settings, row.peak, row.seconds, row.rate, row.failed]
        )
    return text.getvalue()
