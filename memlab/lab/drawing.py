"""The panel's live pictures: SVG as text, quick enough to be made ten times a second.

Each function gives one complete ``<svg>`` with a role and a label for screen readers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle, pairwise

from memlab.palette import (
    BLACK,
    BLUE,
    CATEGORY_COLORS,
    GREY,
    INK,
    LIMIT,
    ORANGE,
    PHASE_SHADE,
    PURPLE,
    QUIET_INK,
)
from memlab.trace import Category, Phase, Step, Trace
from memlab.units import byte_ticks, format_bytes

WIDTH = 700
COLUMNS = 200  # moments drawn of a step: more than a screen shows apart
RANK_STYLES = ((BLUE, "none"), (ORANGE, "6 6"), (BLACK, "2 8"), (PURPLE, "1 11"))
GHOST_DASHES = ("6 4", "2 4", "8 3 2 3")


@dataclass(frozen=True)
class Frame:
    """Where a chart stands in its picture, and how far its axes reach."""

    left: float
    top: float
    width: float
    height: float
    x_top: float
    y_top: float
    y_bottom: float = 0.0

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return round(self.left + self.width * value / (self.x_top or 1), 1)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        reach = self.y_top - self.y_bottom or 1
        return round(self.top + self.height * (1 - (value - self.y_bottom) / reach), 1)

    @property
    def bottom(self) -> float:
        """Pixels from the top to the x axis."""
        return self.top + self.height


def memory_chart(
    trace: Trace, ghosts: Sequence[Trace], *, origin: str = "", budget: int | None = None, capacity: int | None = None
) -> str:
    """One step's memory by category, the peak and the limit named, earlier runs as broken lines.

    Args:
        origin: said in the title, unless the step was measured here and now.
        budget: bytes, a line where the peak comes near it and else a word in the corner.
        capacity: bytes that the card has, likewise.
    """
    limits, far = _limits(trace, budget, capacity)
    peaks = [run.peak_allocated for run in (trace, *ghosts)]
    top = max(*peaks, *(limit for limit, _ in limits), 1)
    frame = Frame(70, 34, WIDTH - 80, 236, len(trace.allocated) - 1, top * 1.2)
    title = ", ".join(filter(None, ("Memory in one step", origin)))
    parts = [_text(0, 18, title, INK, weight=600, size=16), _phases(trace, frame), _byte_axis(frame)]
    parts += _areas(trace, frame)
    for ghost, dashes in zip(reversed(ghosts), GHOST_DASHES, strict=False):
        parts.append(_line(_ghost_points(ghost, frame), GREY, 1.5, dashes))
    parts += [_limit(frame, count, name) for count, name in limits]
    parts += [_text(WIDTH - 10, 18, words, anchor="end") for words in far]
    parts.append(_failure_mark(trace, frame) if trace.oom else _peak_mark(trace, frame))
    parts += _legend(list(trace.timeline), bool(ghosts))
    return _svg(330, trace.sentence, parts)


def _limits(trace: Trace, budget: int | None, capacity: int | None) -> tuple[list[tuple[int, str]], list[str]]:
    """Those that are drawn, each with its name, and words for those so far away that the step would be a flat line."""
    near, far = [], []
    for count, line, words in ((budget, "budget ", "budget "), (capacity, f"{trace.device}: ", f"{trace.device} has ")):
        if count is None:
            continue
        if trace.oom or trace.peak_allocated > count / 4:
            near.append((count, line + format_bytes(count)))
        else:
            times = f"{count / max(trace.peak_allocated, 1):.0f} times this peak"
            far.append(f"{words}{format_bytes(count)}, {times}")
    return near, far


def _limit(frame: Frame, count: int, name: str) -> str:
    y = frame.y(count)
    line = f'<line x1="{frame.left}" x2="{WIDTH - 10}" y1="{y}" y2="{y}" stroke="{LIMIT}" stroke-width="2"/>'
    return line + _text(frame.left + 4, y - 5, name, color=LIMIT)


def steps_chart(
    steps: Sequence[Step], ghosts: Sequence[Sequence[Step]], count: int, ranks: Sequence[Sequence[Step]] = ()
) -> str:
    """The peak and the loss of every step so far, of ``count``; earlier runs as broken lines.

    Args:
        ranks: the steps of each rank, whose peaks are drawn in colours of their own.
    """
    half = WIDTH / 2
    lengths = [count, *(len(ghost) for ghost in ghosts)]
    runs = [_known(steps, "peak_allocated"), *(_known(ghost, "peak_allocated") for ghost in ghosts)]
    highest = max((peak for run in runs for _, peak in run), default=1)
    peaks = Frame(70, 30, half - 90, 110, max(lengths) - 1, highest * 1.15)
    parts = [_text(0, 18, "Peak per step", INK, weight=600, size=16), _byte_axis(peaks, most=3)]
    parts += _runs([[], *runs[1:]] if ranks else runs, peaks)
    parts += _ranks(ranks, peaks)

    runs = [_known(steps, "loss"), *(_known(ghost, "loss") for ghost in ghosts)]
    values = [loss for run in runs for _, loss in run]
    high, low = max(values, default=1.0), min(values, default=0.0)
    margin = 0.08 * (high - low) or 0.5
    losses = Frame(half + 60, 30, half - 70, 110, max(lengths) - 1, high + margin, low - margin)
    parts += [_text(half + 10, 18, "Loss", INK, weight=600, size=16), *_loss_axis(losses, values), *_runs(runs, losses)]
    caption = f"step {len(steps)} of {count}"
    parts += [_text(frame.left + frame.width, 158, caption, anchor="end") for frame in (peaks, losses)]
    last = f", loss {steps[-1].loss:.3g}" if steps and steps[-1].loss is not None else ""
    return _svg(166, f"Peak and loss per step: {caption}{last}", parts)


def _known(steps: Sequence[Step], field: str) -> list[tuple[int, float]]:
    """The steps where the field has a value that a chart can show."""
    values = ((i, getattr(step, field)) for i, step in enumerate(steps))
    return [(i, value) for i, value in values if value is not None and math.isfinite(value)]


def _runs(runs: list[list[tuple[int, float]]], frame: Frame) -> list[str]:
    """The run going on as a solid line, the earlier ones behind it."""
    current, *earlier = runs
    lines = [
        _line([(frame.x(x), frame.y(y)) for x, y in run], GREY, 1.5, dashes)
        for run, dashes in zip(reversed(earlier), GHOST_DASHES, strict=False)
    ]
    points = [(frame.x(x), frame.y(y)) for x, y in current]
    if points:
        lines += [_line(points, BLUE, 2.5), f'<circle cx="{points[-1][0]}" cy="{points[-1][1]}" r="4" fill="{BLUE}"/>']
    return [*lines, _floor(frame)]


def _ranks(ranks: Sequence[Sequence[Step]], frame: Frame) -> list[str]:
    """A line a rank, in the colours and dashes that the row below names, so that equal peaks can be told apart."""
    parts, x = [], frame.left
    for rank, (steps, (color, dashes)) in enumerate(zip(ranks, cycle(RANK_STYLES), strict=False)):
        points = [(frame.x(step), frame.y(peak)) for step, peak in _known(steps, "peak_allocated")]
        parts.append(_line(points, color, 2.5, dashes))
        if rank < len(RANK_STYLES):
            name = str(rank) if rank else "rank 0"
            parts += [_line([(x, 153), (x + 16, 153)], color, 2.5, dashes), _text(x + 20, 158, name)]
            x += 26 + 8 * len(name)
    return parts


def _columns(trace: Trace) -> list[int]:
    """Which moments to draw: of every stretch of the step the one with the most allocated."""
    total = len(trace.allocated)
    count = min(total, COLUMNS)
    edges = [total * i // count for i in range(count + 1)]
    return [max(range(first, last), key=trace.allocated.__getitem__) for first, last in pairwise(edges)]


def _areas(trace: Trace, frame: Frame) -> list[str]:
    columns = _columns(trace)
    xs = [frame.x(column) for column in columns]
    below = [0] * len(columns)
    areas = []
    for category, values in trace.timeline.items():
        above = [base + values[column] for base, column in zip(below, columns, strict=True)]
        upper = [f"{x} {frame.y(value)}" for x, value in zip(xs, above, strict=True)]
        lower = [f"{x} {frame.y(value)}" for x, value in zip(xs, below, strict=True)]
        path = f"M{' L'.join([*upper, *reversed(lower)])}Z"
        areas.append(f'<path d="{path}" fill="{CATEGORY_COLORS[category]}" fill-opacity="0.85"/>')
        below = above
    return areas


def _ghost_points(ghost: Trace, frame: Frame) -> list[tuple[float, float]]:
    # A step of other settings may have more or fewer events: stretched to the same width.
    scale = frame.x_top / max(len(ghost.allocated) - 1, 1)
    return [(frame.x(column * scale), frame.y(ghost.allocated[column])) for column in _columns(ghost)]


def _phases(trace: Trace, frame: Frame) -> str:
    parts = []
    for phase, first, last in trace.phases:
        x, pixels = frame.x(first), frame.x(last) - frame.x(first)
        if phase in (Phase.FORWARD, Phase.OPTIMIZER):
            parts.append(_rect(x, frame.top - 10, pixels, frame.height + 10, PHASE_SHADE))
        if phase is not Phase.OTHER and pixels > 60:
            parts.append(_text(x + pixels / 2, frame.top + 6, phase, anchor="middle"))
    return "".join(parts)


def _peak_mark(trace: Trace, frame: Frame) -> str:
    x, y = frame.x(trace.peak_index), frame.y(trace.peak_allocated)
    where = " · ".join(part for part in (trace.peak_phase, trace.peak_module) if part)
    label = f"peak {format_bytes(trace.peak_allocated)} · {where}"
    half = 4.3 * len(label)  # half of its width, nearly: above the dot, but inside the picture
    middle = min(max(x, frame.left + half), WIDTH - half)
    text = _text(middle, y - 10, label, INK, 15, 600, "middle")
    return f'<circle cx="{x}" cy="{y}" r="5" fill="{INK}"/>{text}'


def _failure_mark(trace: Trace, frame: Frame) -> str:
    x, y = frame.x(len(trace.events)), frame.y(trace.allocated[-1])
    cross = f"M{x - 6} {y - 6}l12 12m0 -12l-12 12"
    text = _text(x - 12, y - 12, "out of memory", LIMIT, 15, 600, "end")
    return f'<path d="{cross}" stroke="{LIMIT}" stroke-width="3"/>{text}'


def _legend(categories: list[Category], with_ghosts: bool) -> list[str]:
    parts, x, y = [], 70.0, 290
    entries = [(category.plural, CATEGORY_COLORS[category]) for category in categories]
    for name, color in entries + [("the runs before", None)] * with_ghosts:
        width = 36 + 7.4 * len(name)
        if x + width > WIDTH:
            x, y = 70.0, y + 20
        if color:
            parts.append(_rect(x, y, 12, 12, color))
        else:
            parts.append(_line([(x - 4, y + 6), (x + 14, y + 6)], GREY, 1.5, GHOST_DASHES[0]))
        parts.append(_text(x + 17, y + 11, name, INK))
        x += width
    return parts


def _byte_axis(frame: Frame, most: int = 6) -> str:
    ticks = byte_ticks(int(frame.y_top))
    ticks = ticks[:: -(-len(ticks) // most)]
    texts = "".join(_text(frame.left - 6, frame.y(count) + 4, text, anchor="end") for count, text in ticks)
    return texts + _floor(frame)


def _loss_axis(frame: Frame, values: list[float]) -> list[str]:
    if not values:
        return []
    ends = sorted({min(values), max(values)})
    return [_text(frame.left - 6, frame.y(value) + 4, f"{value:.3g}", anchor="end") for value in ends]


def _floor(frame: Frame) -> str:
    return _line([(frame.left, frame.bottom), (frame.left + frame.width, frame.bottom)], "#AFB8C1", 1)


def _svg(height: int, label: str, parts: list[str]) -> str:
    # Contained, so that a new frame makes the browser lay out and paint this picture, not the notebook.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="100%" role="img" '
        f'aria-label="{escape(label)}" font-family="system-ui, sans-serif" '
        f'style="background:#fff;display:block;contain:strict;aspect-ratio:{WIDTH}/{height}">{"".join(parts)}</svg>'
    )


def _text(
    x: float, y: float, text: str, color: str = QUIET_INK, size: int = 14, weight: int = 400, anchor: str = "start"
) -> str:
    # Written over areas and lines, so each letter has a white edge.
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" stroke="#fff" stroke-width="3" paint-order="stroke">{escape(text)}</text>'
    )


def _rect(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def _line(points: Sequence[tuple[float, float]], color: str, width: float, dashes: str = "none") -> str:
    places = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width}" stroke-dasharray="{dashes}"/>'
    )
