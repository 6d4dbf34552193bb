"""``python -m tests.site.grids NOTEBOOK FILE``: the panels of a notebook's page, predicted, by the id of their cell.

A process of its own for each notebook: what its cells set in torch stays there. Every point is kept at once, in
``build/site-points``, under the code that made it. With ``--begin`` a few points of each panel are predicted, to see
how long the rest takes.
"""

import hashlib
import json
import linecache
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median_high
from typing import Any, NamedTuple

import torch

from memlab import Lab
from memlab.lab.page import Axis, Point, choose_axes, combinations, fragment, point, predict_grid, record
from memlab.lab.session import Session
from memlab.text import message
from memlab.units import format_seconds
from tests.notebooks.cells import ROOT, needed, run
from tests.site.kept import Kept
from tests.site.named import Named, named, runs

CARDS = ("T4", "A100-40GB", "H100")
POINTS = ROOT / "build" / "site-points"
SECONDS_PER_LINE = 10
TRIED = 3  # points of a panel: the first takes longer than others


class Panel(NamedTuple):
    """A panel of a notebook: the id of its cell, the code that it needs, the text above it, the notebook's others."""

    cell: str
    session: Session
    code: list[str]
    above: str
    others: list[str]

    @property
    def named(self) -> Named:
        """The values that the notebook names."""
        return named(self.session, self.above, self.others)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Its controls on the page."""
        return choose_axes(self.session, CARDS, named=self.named)


def panels(notebook: Path) -> Iterator[Panel]:
    """Each panel; of the cells before it those are run that it needs."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    texts = [source for cell, source in zip(cells, sources, strict=True) if cell["cell_type"] == "markdown"]
    code = [source for cell, source in zip(cells, sources, strict=True) if cell["cell_type"] == "code"]
    above = ""
    for cell, source in zip(cells, sources, strict=True):
        if cell["cell_type"] == "markdown":
            above = source
        elif "Lab(" in source:
            its = needed(code, [source])
            _, lab = run(its)
            if isinstance(lab, Lab):
                yield Panel(cell["id"], lab.session, its, above, [text for text in texts if text != above])


def kept(notebook: Path, panel: Panel) -> Kept:
    """Return the file of predictions by the same code: the panel's, memlab's without the HTML writer, and PyTorch."""
    sources = [path for path in sorted((ROOT / "memlab").rglob("*.py")) if path.name != "html.py"]
    code = [*panel.code, *(path.read_text(encoding="utf-8") for path in sources), torch.__version__]
    key = hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]
    return Kept(POINTS / f"{notebook.stem}-{panel.cell}-{key}.jsonl")


class Progress:
    """Says every ten seconds how far a notebook is, and how long what is left takes."""

    def __init__(self, name: str, count: int, left: int):
        self.name, self.count, self.left = name, count, left
        self.times: list[float] = []
        self.said = 0.0

    def step(self) -> None:
        """A point was predicted. The first one takes longer than others."""
        now = time.monotonic()
        self.times.append(now)
        left = self.left - len(self.times)
        if (now - self.said > SECONDS_PER_LINE and self.times[1:]) or not left:
            self.said = now
            rest = left * (now - self.times[0]) / max(len(self.times) - 1, 1)
            words = f"{time_text(rest)} left" if left else "done"
            print(f"{self.name}: {self.count - left} of {self.count} points, {words}", flush=True)


def begin(notebook: Path) -> dict[str, float]:
    """Return the numbers of points and of those left to predict, and the seconds that a point takes."""
    count, left, seconds = 0, 0, [0.0]
    for panel in panels(notebook):
        there, points = kept(notebook, panel), list(combinations(panel.axes))
        for chosen in points[len(points) // 2 :][:TRIED]:
            there.get(chosen, partial(point, panel.session, chosen))
        count, left = count + len(points), left + sum(chosen not in there for chosen in points)
        seconds += there.seconds.values()
    return {"points": count, "left": left, "seconds": median_high(seconds)}


def complete(notebook: Path) -> dict[str, dict[str, Any]]:
    """The panel of each cell that shows one: its HTML, and whether it plays runs."""
    made = list(panels(notebook))
    work = [(panel, kept(notebook, panel), panel.axes) for panel in made]
    left = [chosen not in there for _, there, axes in work for chosen in combinations(axes)]
    progress = Progress(notebook.stem, len(left), sum(left))

    def ask(there: Kept, session: Session, chosen: Mapping[str, Any]) -> Point:
        is_new = chosen not in there
        made = Point(*there.get(chosen, partial(point, session, chosen)))
        if is_new:
            progress.step()
        return made

    done = {}
    for panel, there, axes in work:
        on_page = {(axis.name, value) for axis in axes for value in axis.values}
        for name, value in panel.named:
            if (name, value) not in on_page:
                print(f"{notebook.stem}: the text names {name.replace('_', ' ')} {value}, for which there is no room")
        recorded = list(_runs(notebook, panel, there))
        let_source_be_found(panel)
        grid = predict_grid(panel.session, axes, partial(ask, there), recorded)
        done[panel.cell] = {"html": fragment(grid, with_script=False), "has_runs": bool(recorded)}
    return done


def let_source_be_found(panel: Panel) -> None:
    """For ``inspect``, which asks for the lines of ``<cell>``: all cells are compiled under that name."""
    begins = f"def {getattr(panel.session.train, '__name__', '')}("
    for cell in panel.code:
        if begins in cell:
            linecache.cache["<cell>"] = len(cell), None, cell.splitlines(keepends=True), "<cell>"


def _runs(notebook: Path, panel: Panel, there: Kept) -> Iterator[dict[str, Any]]:
    for settings in runs(panel.session, panel.above):
        try:
            yield there.get({"run": settings}, partial(record, panel.session, **settings))
        except Exception as error:  # such as of a library that is not there
            print(f"{notebook.stem}: no recorded run with {settings}: {type(error).__name__}: {message(error)}")


def time_text(seconds: float) -> str:
    """Seconds, from two minutes on minutes."""
    return format_seconds(seconds) if seconds < 120 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    path, file, *options = sys.argv[1:]
    result = begin(Path(path)) if options else complete(Path(path))
    Path(file).write_text(json.dumps(result), encoding="utf-8")
