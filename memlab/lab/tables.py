"""Tables and sentences with measured values in them, so that a notebook shows its technique and not string building.

In both, a value is written as what it is in memlab: a whole number is bytes, a run is its peak, any other number has
three significant digits. In a sentence a format of its own says otherwise: ``{steps:d} steps``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from memlab.trace import Trace
from memlab.units import format_bytes, three_digits


def text_of(value: object) -> str:
    """A value as a reader is shown it: ``412 MiB`` for bytes, ``1.07`` for a ratio, its peak for a run."""
    if isinstance(value, Trace):
        return "out of memory" if value.oom else value.peak_text
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return format_bytes(value)
    return three_digits(value) if 0.01 <= abs(value) < 1000 else f"{value:.3g}"


class Prose(str):
    """Text that a notebook shows as Markdown."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


def say(template: str, /, **values: object) -> Prose:
    """A sentence with values in it, for a notebook to show.

    Args:
        template: the sentence, with the names of values in braces: ``"The peak is {peak}."``
        **values: by name; each is written by its type, or by the format after its name: ``{share:.0%}``.
    """
    return Prose(_Values().vformat(template, (), values))


class _Values(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return format(value, format_spec) if format_spec else text_of(value)


@dataclass(frozen=True)
class Table:
    """Rows of values under their headings. The columns in ``numbers`` are aligned to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int]

    def __str__(self) -> str:
        return self._repr_markdown_()

    def _repr_markdown_(self) -> str:
        rules = "|".join("--:" if place in self.numbers else "---" for place in range(len(self.columns)))
        return "\n".join([_row(self.columns), f"|{rules}|", *map(_row, self.rows)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table, for a notebook to show. Numbers are aligned to the right, a column of text to the left.

    Args:
        columns: the headings.
        rows: each as long as ``columns``. The first value of a row is its name, a number there is no bytes.

    Raises:
        ValueError: a row has another length.
    """
    values = list(rows)
    written = [(str(name), *map(text_of, others)) for name, *others in values]
    if wrong := [row for row in written if len(row) != len(columns)]:
        raise ValueError(f"The row {wrong[0]} has {len(wrong[0])} values: give {len(columns)}, one for each column.")
    numbers = frozenset(place for place, column in enumerate(zip(*values, strict=True)) if place and _numbers(column))
    return Table(tuple(columns), tuple(written), numbers)


def _numbers(column: Iterable[object]) -> bool:
    """Return True if a column holds numbers: it has a value that is no text, or all its texts begin with a digit."""
    texts = [value for value in column if value != ""]
    return not all(isinstance(value, str) for value in texts) or all(str(value)[0].isdigit() for value in texts)


def categories(runs: Mapping[str, Trace], heading: str = "at the peak") -> Table:
    """Return a table of the bytes at the peak of each run: a row for each category, and the peak.

    For two runs a last column has the second's bytes as a multiple of the first's.
    """
    taken = [run.by_category for run in runs.values()]
    found = list(dict.fromkeys(category for by_category in taken for category in by_category))
    rows = [(category.plural, [by_category.get(category, 0) for by_category in taken]) for category in found]
    rows.append(("**peak**", [run.peak_allocated for run in runs.values()]))
    if len(runs) != 2:
        return table([heading, *runs], [[name, *counts] for name, counts in rows])
    return table([heading, *runs, "times"], [[name, *counts, _times(*counts)] for name, counts in rows])


def peaks(runs: Mapping[str, Trace], heading: str = "", **others: Callable[[Trace], object]) -> Table:
    """The peak of each run, a row each, and how many times the first run's it is.

    Args:
        runs: by the name to write.
        heading: what the names are.
        **others: further columns, each worked out of the run; ``_`` in a name is a space.
    """
    first = next(iter(runs.values())).peak_allocated
    columns = [heading, "peak", "of the first", *(name.replace("_", " ") for name in others)]
    rows = (
        [name, run, "" if run.oom else _times(first, run.peak_allocated), *(other(run) for other in others.values())]
        for name, run in runs.items()
    )
    return table(columns, rows)


def _times(before: int, after: int) -> object:
    return after / before if before else ""
