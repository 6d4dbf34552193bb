"""The panel's pictures of a run's progress: the peak and the loss of every step."""

import math
from collections.abc import Sequence
from html import escape
from itertools import cycle
from statistics import median

from memlab.lab.drawing import GHOST_DASHES, figure_style
from memlab.lab.style import color
from memlab.lab.svg import Scale, curve, dot, plot
from memlab.palette import ORANGE, PURPLE
from memlab.trace import Step
from memlab.units import byte_ticks, format_seconds

_HEIGHT = 92
_RANK_STYLES = ((color("line"), ""), (ORANGE, "6 6"), (color("ink"), "2 8"), (PURPLE, "1 11"))

Points = list[tuple[int, float]]


def steps_chart(
    steps: Sequence[Step],
    ghosts: Sequence[Sequence[Step]],
    count: int,
    ranks: Sequence[Sequence[Step]] = (),
    *,
    name: str = "",
    settings: str = "",
) -> str:
    """The peak and the loss of every step so far, of ``count``; earlier runs as broken lines: HTML.

    Args:
        ranks: the steps of each rank, whose peaks are drawn in colours of their own.
        name: what a run is called that is over: its charts stay when a prediction is shown. ``""`` while more steps
            follow: then the time that they take is said, as far as it can be known.
        settings: of a run that is over.
    """
    longest = max([count, *map(len, ghosts)]) - 1
    caption = ": ".join(filter(None, [name, f"step {len(steps)} of {count}"]))
    seconds = None if name else _seconds_left(steps, count)
    beside = _quiet(f"about {format_seconds(seconds)} left") if seconds else _in_one_line(settings)
    last = f", loss {steps[-1].loss:.3g}" if steps and steps[-1].loss is not None else ""
    label = f"Peak and loss per step: {caption}{last}"
    peaks = _chart("Peak", label, _peaks(steps, ghosts, ranks, longest), _quiet(caption))
    losses = _chart("Loss", label, _losses(steps, ghosts, longest), beside)
    style = f"display:flex;flex-wrap:wrap;gap:4px 16px;margin-top:8px;{figure_style()}"
    return f'<div style="{style}">{_names(ranks)}{peaks}{losses}</div>'


def _quiet(text: str) -> str:
    return f'<span style="color:{color("quiet")}">{text}</span>'


def _in_one_line(text: str) -> str:
    """Quiet words of which the last are left out where there is no room; a mouse that rests on them brings them up."""
    # Clamped, not kept from wrapping: what does not wrap makes the panel wider than there is room for.
    style = "flex:1 1 0;overflow:hidden;display:-webkit-box;-webkit-line-clamp:1;-webkit-box-orient:vertical"
    return f'<span style="{style};color:{color("quiet")}" title="{escape(text)}">{escape(text)}</span>' if text else ""


def _chart(title: str, label: str, drawn: tuple[list[tuple[str, float]], str, str], beside: str) -> str:
    axis, curves, front = drawn
    heading = f'<div style="display:flex;flex-wrap:wrap;column-gap:14px"><b>{title}</b>{beside}</div>'
    picture = plot(_HEIGHT, label, axis=axis, behind="", curves=curves, front=front)
    return f'<div style="flex:1 1 200px;min-width:0">{heading}{picture}</div>'


def _peaks(
    steps: Sequence[Step], ghosts: Sequence[Sequence[Step]], ranks: Sequence[Sequence[Step]], longest: int
) -> tuple[list[tuple[str, float]], str, str]:
    runs = [_known(run, "peak_allocated") for run in (steps, *ghosts)]
    highest = max((peak for run in runs for _, peak in run), default=1)
    scale = Scale(longest, highest * 1.15, 8, _HEIGHT - 18)
    ticks = byte_ticks(int(scale.y_top))
    axis = [(text, scale.y(count)) for count, text in ticks[:: -(-len(ticks) // 3)]]
    reached = [_to_the_end(run, len(own)) for run, own in zip(runs, (steps, *ghosts), strict=True)]
    if not ranks:
        return axis, *_runs(reached, scale)
    behind, _ = _runs([[], *reached[1:]], scale)
    lines, dots = [behind], []
    for own, (stroke, dashes) in zip(ranks, cycle(_RANK_STYLES), strict=False):
        if run := _to_the_end(_known(own, "peak_allocated"), len(own)):
            x, y = run[-1]
            lines.append(curve([scale.point(*point) for point in run], stroke, 2.5, dashes))
            dots.append(dot(scale.x(x), scale.y(y), stroke))
    return axis, "".join(lines), "".join(dots)


def _losses(
    steps: Sequence[Step], ghosts: Sequence[Sequence[Step]], longest: int
) -> tuple[list[tuple[str, float]], str, str]:
    runs = [_known(run, "loss") for run in (steps, *ghosts)]
    values = [loss for run in runs for _, loss in run]
    high, low = max(values, default=1.0), min(values, default=0.0)
    margin = 0.08 * (high - low) or 0.5
    scale = Scale(longest, high + margin, 8, _HEIGHT - 18, low - margin)
    ends = {f"{value:.3g}": scale.y(value) for value in ({low, high} if values else ())}
    return list(ends.items()), *_runs(runs, scale)


def _known(steps: Sequence[Step], field: str) -> Points:
    """The steps where the field has a value that a chart can show."""
    values = ((i, getattr(step, field)) for i, step in enumerate(steps))
    return [(i, value) for i, value in values if value is not None and math.isfinite(value)]


def _to_the_end(run: Points, count: int) -> Points:
    """The line as far as the run has come: on the CPU the last step is seldom one whose peak was read."""
    return [*run, (count - 1, run[-1][1])] if run and run[-1][0] < count - 1 else run


def _runs(runs: list[Points], scale: Scale) -> tuple[str, str]:
    """The run going on as a solid line with a dot at its end, the earlier ones behind it; the dot apart."""
    current, *earlier = ([scale.point(*point) for point in run] for run in runs)
    lines = [
        curve(run, color("ghost"), 1.5, dashes)
        for run, dashes in zip(reversed(earlier), GHOST_DASHES, strict=False)
        if run
    ]
    floor = curve([scale.point(0, scale.y_bottom), scale.point(scale.x_top, scale.y_bottom)], color("floor"), 1)
    if not current:
        return "".join([*lines, floor]), ""
    x, y = runs[0][-1]
    return "".join([*lines, floor, curve(current, color("line"), 2.5)]), dot(scale.x(x), scale.y(y), color("line"))


def _names(ranks: Sequence[Sequence[Step]]) -> str:
    """The lines of the first ranks, so that equal peaks can be told apart."""
    entries = (
        f'<span style="white-space:nowrap"><svg width="18" height="10" aria-hidden="true" style="margin-right:4px">'
        f'<path d="M0 5h18" stroke="{stroke}" stroke-width="2.5" stroke-dasharray="{dashes or "none"}"/></svg>'
        f"{escape(f'rank {rank}')}</span>"
        for rank, (_, (stroke, dashes)) in enumerate(zip(ranks, _RANK_STYLES, strict=False))
    )
    style = "flex:1 1 100%;display:flex;flex-wrap:wrap;column-gap:14px"  # a row above both charts
    return f'<div style="{style}">{"".join(entries)}</div>' if ranks else ""


def _seconds_left(steps: Sequence[Step], count: int) -> float | None:
    """What the rest of a run will take if its steps are like the newest ones; None before there is one."""
    seconds = [step.seconds for step in steps[-10:] if step.seconds is not None]
    return median(seconds) * (count - len(steps)) if seconds else None
