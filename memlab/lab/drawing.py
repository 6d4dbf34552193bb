"""The panel's picture of memory: one step's bytes by category, the peak and the limits named, earlier runs behind."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise, product

from memlab.lab.aligning import align
from memlab.lab.style import color
from memlab.lab.svg import NARROWEST, SIZE, Box, Label, Scale, area, curve, dot, first_free, inside, level, plot, shade
from memlab.trace import Category, Phase, Trace
from memlab.units import byte_ticks, format_bytes

COLUMNS = 200  # moments drawn of a step: more than a screen shows apart
GHOST_DASHES = ("6 4", "2 4", "8 3 2 3")

_STRIP = 22  # pixels at the top, where the phases are named
_HEADROOM = 46  # pixels above the highest peak or limit, for what is written there
_HEIGHT = 252
_BOUNDS = Box(0, _STRIP, NARROWEST, _HEIGHT)


def memory_chart(
    trace: Trace,
    ghosts: Sequence[tuple[Trace, str]] = (),
    *,
    heading: str = "Memory in one step",
    origin: str = "",
    facts: str = "",
    budget: int | None = None,
    room: int | None = None,
    workspace: bool = True,
) -> str:
    """One step's memory by category, the peak and the limits named, earlier runs as broken lines: HTML.

    Args:
        ghosts: earlier runs, each with what it differs in; the newest last.
        heading: the settings of the run.
        origin: where it comes from, below the heading.
        facts: what it takes and how long, beside that.
        budget: bytes, a line where the peak comes near it and else words below the heading.
        room: bytes that PyTorch can have of the card, likewise.
        workspace: whether that category has an area. The peak counts it all the same.
    """
    limits, far = _limits(trace, budget, room)
    newest_first = list(zip(reversed(ghosts), GHOST_DASHES, strict=False))
    whole = [run for run in (trace, *(ghost for (ghost, _), _ in newest_first)) if not run.oom]
    reference = whole[0] if whole else trace
    top = max(trace.peak_allocated, *(run.peak_allocated for run, _ in ghosts), *(count for count, _ in limits), 1)
    height = _HEIGHT - _STRIP - 8  # the lowest number needs some pixels below its line
    scale = Scale(len(reference.events), top * height / (height - _HEADROOM), _STRIP, height)
    hidden = {Category.WORKSPACE} if not workspace else set()
    curves = [*_areas(trace, reference, scale, hidden)]
    for (ghost, _), dashes in newest_first:
        points = _outline(ghost, reference, scale)
        curves += [curve(points, color("ground"), 3.5), curve(points, color("ghost"), 1.8, dashes)]
    labels = _labels(trace, reference, scale, limits)
    lines = "".join(level(scale.y(count), color("limit"), 2) for count, _ in limits)
    picture = plot(
        _HEIGHT,
        trace.sentence,
        axis=_axis(scale),
        behind=_shades(reference, scale),
        curves="".join(curves),
        front=lines + _mark(trace, reference, scale) + "".join(label.svg() for label in labels),
    )
    parts = " · ".join(f'<span style="white-space:nowrap">{escape(part)}</span>' for part in heading.split(" · "))
    title = f'<div><b style="font-size:16px">{parts}</b></div>'
    said = " · ".join([*map(_quiet, filter(None, [origin])), *filter(None, [facts]), *map(_quiet, far)])
    below = f'<div style="color:{color("quiet")}">{said}</div>' if said else ""
    legend = _legend(trace, hidden, [(name, dashes) for (_, name), dashes in newest_first])
    return f'<div style="{figure_style()}">{title}{below}{picture}{legend}</div>'


def figure_style() -> str:
    """How a picture with its words looks."""
    family = "font-family:system-ui,sans-serif"
    return f"background:{color('ground')};color:{color('ink')};font-size:14px;line-height:1.45;{family}"


def _row(parts: Iterable[str]) -> str:
    style = "display:flex;flex-wrap:wrap;align-items:baseline;column-gap:14px"
    return f'<div style="{style}">{"".join(parts)}</div>'


def _quiet(text: str) -> str:
    return f'<span style="color:{color("quiet")}">{escape(text)}</span>'


def _limits(trace: Trace, budget: int | None, room: int | None) -> tuple[list[tuple[int, str]], list[str]]:
    """Those that are drawn, each with its name, and words for those so far away that the step would be a flat line."""
    near, far = [], []
    for count, line, words in ((room, f"{trace.device}: ", f"{trace.device} has "), (budget, "budget ", "budget ")):
        if count is None:
            continue
        if trace.oom or trace.peak_allocated > count / 4:
            near.append((count, line + format_bytes(count)))
        else:
            times = f"{count / max(trace.peak_allocated, 1):.0f} times this peak"
            far.append(f"{words}{format_bytes(count)}, {times}")
    return near, far


def _columns(trace: Trace) -> list[int]:
    """Which moments to draw: of every stretch of the step the one with the most allocated, and the first and last."""
    total = len(trace.allocated)
    count = min(total, COLUMNS)
    edges = [total * i // count for i in range(count + 1)]
    highest = {max(range(first, last), key=trace.allocated.__getitem__) for first, last in pairwise(edges)}
    return sorted(highest | {0, total - 1})


def _areas(trace: Trace, reference: Trace, scale: Scale, hidden: set[Category]) -> Iterator[str]:
    """An area for each category, and a line along what is allocated in all."""
    columns, place = _columns(trace), align(trace, reference)
    xs = [place(column) for column in columns]
    below = [0] * len(columns)
    lower = [scale.point(x, 0) for x in xs]
    for category, values in trace.timeline.items():
        if category not in hidden:
            below = [base + values[column] for base, column in zip(below, columns, strict=True)]
            upper = [scale.point(x, value) for x, value in zip(xs, below, strict=True)]
            yield area(upper, lower, color(category.name.lower()))
            lower = upper
    yield curve(_outline(trace, reference, scale), color("ink"), 1.2)


def _outline(trace: Trace, reference: Trace, scale: Scale) -> list[str]:
    place = align(trace, reference)
    return [scale.point(place(column), trace.allocated[column]) for column in _columns(trace)]


def _shades(reference: Trace, scale: Scale) -> str:
    return "".join(
        shade(scale.x(first), scale.x(last), scale.bottom)
        for phase, first, last in reference.phases
        if phase in (Phase.FORWARD, Phase.OPTIMIZER)
    )


def _mark(trace: Trace, reference: Trace, scale: Scale) -> str:
    """A dot at the peak, or a cross where memory ran out."""
    x, y = _marked(trace, reference, scale)
    if not trace.oom:
        return dot(x, y, color("ink"))
    cross = f'<path d="M-6 -6l12 12m0 -12l-12 12" stroke="{color("limit")}" stroke-width="3"/>'
    return f'<svg x="{x:.2%}" y="{y}" overflow="visible">{cross}</svg>'


def _marked(trace: Trace, reference: Trace, scale: Scale) -> tuple[float, float]:
    moment = len(trace.events) if trace.oom else trace.peak_index
    return scale.x(align(trace, reference)(moment)), scale.y(trace.allocated[moment])


def _labels(trace: Trace, reference: Trace, scale: Scale, limits: Sequence[tuple[int, str]]) -> list[Label]:
    """What is written in the plot, each text in the first of its places where it meets no other and no line."""
    x, y = _marked(trace, reference, scale)
    heights = {name: scale.y(count) for count, name in limits}
    lines = {name: Box(0, height - 1.5, NARROWEST, height + 1.5) for name, height in heights.items()}
    mark = Box(x * NARROWEST - 6, y - 6, x * NARROWEST + 6, y + 6)
    labels = _phase_names(reference, scale)
    for name, height in heights.items():  # of lines that coincide neither is in the other's way
        others = [lines[other] for other in lines if abs(heights[other] - height) > 4]
        _put(labels, _limit_places(height, name), [mark, *others])
    _put(labels, _mark_places(trace, x, y), [mark, *lines.values()])
    return labels


def _put(labels: list[Label], places: Iterable[Label], taken: list[Box]) -> None:
    label = first_free(places, [*taken, *(other.box for other in labels)], _BOUNDS)
    if label is not None:
        labels.append(label)


def _phase_names(reference: Trace, scale: Scale) -> list[Label]:
    """The names of the phases; one may stand out of its phase by a letter, if it meets no other.

    Where two take turns, as in a pipeline, and no stretch of one has room, its name stands at the longest of them.
    """
    labels: list[Label] = []
    for phase, first, last in reference.phases:
        _put_phase_name(labels, phase, scale.x((first + last) / 2), scale.x(last - first))
    whole = {phase: sum(last - first for other, first, last in reference.phases if other is phase) for phase in Phase}
    for phase, first, last in sorted(reference.phases, key=lambda stretch: stretch[1] - stretch[2]):
        if phase not in {label.text for label in labels}:
            _put_phase_name(labels, phase, scale.x((first + last) / 2), scale.x(whole[phase]))
    return sorted(labels, key=lambda label: label.x)  # as they are read


def _put_phase_name(labels: list[Label], phase: Phase, middle: float, room: float) -> None:
    label = inside(Label(phase, middle, 16))
    fits = label.box.right - label.box.left < NARROWEST * room + SIZE
    if phase is not Phase.OTHER and fits and not any(label.box.hits(other.box) for other in labels):
        labels.append(label)


def _limit_places(y: float, name: str) -> Iterator[Label]:
    """Above the line or below it, at either end; in the worst case a row higher."""
    for base in (y - 6, y + SIZE + 3, y - SIZE - 10):
        for x, anchor in ((0.01, "start"), (0.99, "end"), (0.5, "middle")):
            yield Label(name, x, base, anchor, "limit")


def _mark_places(trace: Trace, x: float, y: float) -> Iterator[Label]:
    """Above the mark, as near as can be, else beside that, else below it; in fewer words where not all have room."""
    where = [part for part in (trace.peak_phase, trace.peak_module) if part]
    peak = f"peak {trace.peak_text}"
    texts = ["out of memory"] if trace.oom else [" · ".join([peak, *where[:count]]) for count in (2, 1, 0)]
    for text in dict.fromkeys(texts):
        for bases, place in product((range(10, 70, 4), range(-22, -80, -4)), (x, 0.0, 1.0)):
            for base in bases:
                yield inside(Label(text, place, y - base, "middle", "limit" if trace.oom else "ink", bold=True))


def _axis(scale: Scale, most: int = 6) -> list[tuple[str, float]]:
    ticks = byte_ticks(int(scale.y_top))
    return [(text, scale.y(count)) for count, text in ticks[:: -(-len(ticks) // most)]]


def _legend(trace: Trace, hidden: set[Category], ghosts: Iterable[tuple[str, str]]) -> str:
    """What the areas and the broken lines are."""
    entries = [
        _entry(f"background:{color(category.name.lower())};width:12px;height:12px", category.plural)
        for category in trace.timeline
        if category not in hidden
    ]
    entries += [
        f'<span style="white-space:nowrap"><svg width="26" height="10" aria-hidden="true" style="margin-right:5px">'
        f'<path d="M0 5h26" stroke="{color("ghost")}" stroke-width="2" stroke-dasharray="{dashes}"/></svg>'
        f"{escape(name)}</span>"
        for name, dashes in ghosts
    ]
    if hidden & trace.timeline.keys():
        entries.append(_quiet("workspace is hidden: the line and the peak count it"))
    return f'<div style="padding-left:66px">{_row(entries)}</div>'


def _entry(swatch: str, name: str) -> str:
    return (
        f'<span style="white-space:nowrap"><span style="display:inline-block;margin-right:5px;{swatch}"></span>'
        f"{escape(name)}</span>"
    )
