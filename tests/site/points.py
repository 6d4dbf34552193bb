"""``python -m tests.site.points PAGE NOTEBOOK``: do its panels say what ``predict`` says, at ten random points each?"""

import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memlab import predict
from memlab.lab.page import Axis, combinations
from memlab.lab.page.grid import CARD, MODEL
from memlab.lab.page.html import unpacked
from memlab.lab.ranks import open_prediction
from memlab.lab.session import Session
from memlab.lab.words import prediction_summary
from tests.lab.page.whole import whole
from tests.site.grids import panels

POINTS = 10
GRID = re.compile(r'data-grid="([^"]*)"')


def grids(page: Path) -> list[dict[str, Any]]:
    """Return the grids of the panels on a page."""
    return [unpacked(packed) for packed in GRID.findall(page.read_text(encoding="utf-8"))]


def differing(session: Session, axes: Sequence[Axis], grid: Mapping[str, Any], seed: int = 0) -> Iterator[str]:
    """Those of ten random points at which a panel does not say or draw what is predicted, each in a line."""
    points = list(combinations(axes))
    for number in random.Random(seed).sample(range(len(points)), POINTS):
        settings = dict(points[number])
        settings |= session.models[settings.pop(MODEL, session.model)]
        gpu = settings.pop(CARD)
        trace = predict(session.train, gpu=gpu, **settings)
        needed = open_prediction(session.train, settings, gpu, is_endless=True).complete() if trace.oom else None
        said = prediction_summary(trace, needed=needed)
        if (shown := grid["sentences"][number]) != said:
            yield f"{points[number]}: the page says {shown!r}, predict {said!r}"
        elif (drawn := drawn_step(grid, number)) != (step := _without_times(trace.to_plain())):
            parts = [name for name in step if drawn.get(name) != step[name]]
            yield f"{points[number]}: the page draws other {', '.join(parts)}"


def drawn_step(grid: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The step that a panel draws at a point; of the times of events, which are rounded, nothing."""
    return _without_times(whole(grid["shown"][number], grid["shared"])["trace"])


def _without_times(trace: Mapping[str, Any]) -> dict[str, Any]:
    events = {name: column for name, column in trace["events"].items() if name != "seconds"}
    return {**trace, "events": events}


if __name__ == "__main__":
    page, notebook = map(Path, sys.argv[1:])
    shown = grids(page)
    made = [(panel.session, panel.axes) for panel in panels(notebook)]
    found = [line for (session, axes), grid in zip(made, shown, strict=True) for line in differing(session, axes, grid)]
    print("\n".join([*found, f"{page.name}: {POINTS * len(shown)} points compared, {len(found)} differ."]))
    sys.exit(1 if found else 0)
