"""The memory bill at the head of each notebook: what the series has saved so far, with this technique's line marked.

The record is ``notebooks/recorded/bill.json``; ``python -m tests.notebooks.bill`` writes it and has the loop.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from memlab.palette import INK, LIMIT, QUIET_INK
from memlab.plots import SMALL, Picture, draw_legend, pile, write_title
from memlab.shipped import shipped_folder
from memlab.units import byte_ticks, format_bytes
from memlab.vgpu.cards import CARDS

ROW = 0.34  # inches
PALE = 0.25  # of a technique whose notebook is still to come
LEAST = 0.01  # of the highest bar: a category that takes less cannot be seen, so it needs no name


@dataclass(frozen=True)
class Rung:
    """One line of the bill: what a step takes with this technique and all those above it.

    Attributes:
        notebook: the number of the notebook that teaches it, as ``"06"``.
        name: of the technique.
        by_category: bytes at the peak.
        least_seconds, likely_seconds: of a step on the card, by its roofline and estimated.
    """

    notebook: str
    name: str
    by_category: Mapping[str, int]
    least_seconds: float
    likely_seconds: float

    @property
    def peak(self) -> int:
        """Bytes allocated at most."""
        return sum(self.by_category.values())


@dataclass(frozen=True)
class Record:
    """The whole bill: a model, its batch and a card, which stay the same from notebook to notebook, and its lines."""

    model: str
    batch: str
    card: str
    rungs: tuple[Rung, ...]

    @property
    def room(self) -> int:
        """Bytes that PyTorch can have of the card."""
        return CARDS[self.card].room


def record() -> Record:
    """Read the bill that comes with the notebooks."""
    fields = json.loads((shipped_folder() / "recorded" / "bill.json").read_text(encoding="utf-8"))
    return Record(**fields | {"rungs": tuple(Rung(**rung) for rung in fields["rungs"])})


def bill(notebook: str, *, until: str = "") -> Picture:
    """Draw what the series has saved up to a notebook, and pale what later ones will save.

    Args:
        notebook: its number, as ``"06"``. One whose technique has no line of its own marks none.
        until: the number of the last line to draw, where the rest is to be guessed.
    """
    found = record()
    if until:
        shown = [rung.notebook for rung in found.rungs].index(until) + 1
        found = replace(found, rungs=found.rungs[:shown])
    title = _title(found, notebook)
    picture = Picture(title, height=1.3 + ROW * len(found.rungs))
    axes = picture.add_subplot()
    _draw_rows(axes, found.rungs, notebook)
    axes.axvline(found.room, color=LIMIT, linestyle="--", linewidth=1.5, zorder=1)
    where = (found.room, len(found.rungs) - 1)  # beside the lowest bar, where the line crosses nothing
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": LIMIT, "fontsize": SMALL}
    axes.annotate(f"{found.card}: {format_bytes(found.room)}", where, (5, 0), **look)
    source = f"{found.model}, {found.batch}, on a {found.card} (predicted)"
    write_title(axes, title, f"{source}; each line adds to those above")
    if found.rungs[-1].notebook > notebook:
        axes.barh([0], [0], color=[(QUIET_INK, PALE)], label="pale: later notebooks")
    draw_legend(picture)
    return picture


def _title(found: Record, notebook: str) -> str:
    rungs = found.rungs
    place = next((i for i, rung in enumerate(rungs) if rung.notebook == notebook), None)
    if place == 0:
        over = rungs[0].peak - found.room
        return f"The bill: {format_bytes(rungs[0].peak)} for one step, {format_bytes(over)} over a {found.card}"
    if place is None:
        return f"The bill: from {format_bytes(rungs[0].peak)} to {format_bytes(rungs[-1].peak)}, step by step"
    before, after = rungs[place - 1].peak, rungs[place].peak
    if format_bytes(before) == format_bytes(after):
        return f"The bill: this notebook's line takes nothing off its {format_bytes(before)}"
    return f"The bill: this notebook takes {format_bytes(before)} down to {format_bytes(after)}"


def _draw_rows(axes: Axes, rungs: Sequence[Rung], notebook: str) -> None:
    shades = [1.0 if rung.notebook <= notebook else PALE for rung in rungs]
    taken = [rung.by_category for rung in rungs]
    peaks = pile(partial(axes.barh, range(len(rungs))), taken, shades=shades, least=LEAST * rungs[0].peak)
    for row, rung in enumerate(rungs):
        _write_row(axes, row, rung, rungs[row - 1].peak - rung.peak if row else 0, rung.notebook == notebook)
    labels = axes.set_yticks(range(len(rungs)), [f"{rung.notebook}  {rung.name}" for rung in rungs])
    for tick, rung in zip(labels, rungs, strict=True):
        tick.label1.set(fontweight="bold" if rung.notebook == notebook else "normal", color=INK, fontsize=SMALL)
    axes.set_ylim(len(rungs) - 0.4, -0.6)
    ticks = byte_ticks(max(peaks))
    axes.set_xticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(0, max(peaks) * 1.2)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _write_row(axes: Axes, row: int, rung: Rung, saved: int, is_marked: bool) -> None:
    is_less = format_bytes(rung.peak) != format_bytes(rung.peak + saved)
    text = format_bytes(rung.peak) + (f"  (\u2212{format_bytes(saved)})" if is_less else "")
    look: dict[str, Any] = {"fontweight": "bold", "color": INK} if is_marked or not row else {"color": QUIET_INK}
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the limit may be behind it
    offset: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": SMALL, "bbox": ground}
    axes.annotate(text, (rung.peak, row), (4, 0), **offset, **look)
