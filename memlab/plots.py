"""Matplotlib figures of traces. Each carries the sentence that says the same in words."""

import base64
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import cycle
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from memlab.errors import BadValue
from memlab.palette import BLUE, CATEGORY_COLORS, INK, LIMIT, ORANGE, PHASE_SHADE, QUIET_INK
from memlab.text import capital
from memlab.trace import Category, Phase, Trace
from memlab.units import byte_ticks, format_bytes, format_seconds, parse_bytes
from memlab.vgpu.lookup import known_card

ABOVE: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}  # where a picture's notes stand
LINES = [(BLUE, "o-"), (ORANGE, "s--"), (INK, "^:")]
SMALL = 10  # points: 13 pixels, the least that is legible from the last row


NOTE_WIDTH = 100  # letters of a note below a title: what stands beside the axes must not be wider than the picture


class Picture(Figure):
    """A figure that any notebook front end shows as a PNG, and that a screen reader says as its ``sentence``."""

    def __init__(self, sentence: str, height: float = 3.4):
        # No pyplot: nothing global is touched, so any thread may draw.
        super().__init__(figsize=(8, height), dpi=96, layout="constrained")
        self.subplotpars.update(top=0.5)  # before the layout; a title above the picture would wrap at each word
        self.sentence = sentence

    def png(self) -> bytes:
        """The figure as a PNG file, in a palette of 128 colours: a third of the size, which notebooks carry."""
        canvas = FigureCanvasAgg(self)
        canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        image = image.quantize(128, Image.Quantize.MAXCOVERAGE)  # keeps the colour of a small patch of the legend
        description = PngInfo()
        description.add_itxt("Description", self.sentence)
        file = io.BytesIO()
        image.save(file, format="png", optimize=True, pnginfo=description)
        return file.getvalue()

    def html(self) -> str:
        """The figure as an ``<img>``, which can have a text; a front end gives a PNG none."""
        encoded = base64.b64encode(self.png()).decode()
        return f'<img alt="{escape(self.sentence)}" src="data:image/png;base64,{encoded}">'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/html": self.html(), "text/plain": self.sentence}


def timeline(
    trace: Trace, *, budget: str | int | None = None, by_events: bool = False, note: str = "", title: str = ""
) -> Picture:
    """Allocated bytes by category through the X-rayed step, the phases and the peak named.

    Where much more is reserved than allocated, what is reserved and free is hatched.
    A prediction is drawn by its estimated time, a run by its events: a clock would draw another picture each time.

    Args:
        trace: the run to show.
        budget: bytes, or text such as ``"15 GiB"``, drawn as a line.
        by_events: draw a prediction by its events, too, so that what lives for too short a time has a width.
        note: written small below the title; by default where the run comes from.
        title: by default, says what the peak is made of.
    """
    picture = Picture(title or trace.sentence)
    axes = picture.add_subplot()
    is_timed = trace.source == "predicted" and trace.seconds[-1] > 0 and not by_events
    moments = trace.seconds if is_timed else range(len(trace.allocated))
    _shade_phases(axes, trace, moments)
    total = max([moments[-1], *(end for _, end in trace.waits if is_timed)])  # a rank may wait after the last event
    right = 1.025 * total if trace.oom else total  # what was allocated last, before memory ran out, gets a width
    below = [0] * (len(moments) + 1)
    for category, values in trace.timeline.items():
        above = [base + value for base, value in zip(below, (*values, values[-1]), strict=True)]
        look: dict[str, Any] = {"color": CATEGORY_COLORS[category], "alpha": 0.85, "linewidth": 0}
        axes.fill_between([*moments, right], below, above, step="post", label=category.plural, **look)
        below = above
    if is_timed:
        _stripe_waits(axes, trace)
    limit = trace.oom.limit if trace.oom and budget is None else budget
    held = _draw_reserved(axes, trace, moments) if trace.holds_much_idle and trace.reserved else 0
    _mark_peak(axes, trace, moments, above=held)
    byte_axis(axes, max(trace.peak_allocated, held, 0 if limit is None else parse_bytes(limit)) * 1.3)
    if limit is not None:
        _draw_limit(axes, parse_bytes(limit), [trace])
    axes.set_xlim(0, right or 1)
    if is_timed:
        axes.set_xticks([0, total], ["0", format_seconds(total)])
        axes.set_xlabel("time in one step, estimated", color=QUIET_INK)
    else:
        axes.set_xlabel("events of one step (an allocation or a free each)", color=QUIET_INK)
    write_title(axes, picture.sentence, note or sources([trace]))
    draw_legend(picture)
    return picture


def bars(traces: Mapping[str, Trace], *, budget: str | int | None = None, title: str = "") -> Picture:
    """Draw the categories of each run's peak, side by side, with the peak on top.

    Args:
        traces: the runs, by the name to write under each.
        budget: bytes, or text such as ``"15 GiB"``, drawn as a line.
        title: by default, names the highest and the lowest.

    Raises:
        BadValue: when there is nothing to draw.
    """
    check_some(traces)
    sentence = title or _compare(traces)
    picture = Picture(sentence)
    axes = picture.add_subplot()
    byte_axis(axes, max(stack(axes, traces), 0 if budget is None else parse_bytes(budget)) * 1.15)
    if budget is not None:
        _draw_limit(axes, parse_bytes(budget), traces.values())
    write_title(axes, sentence, sources(traces.values()))
    draw_legend(picture)
    return picture


def curve(traces: Sequence[Trace] | Mapping[str, Sequence[Trace]], setting: str, *, title: str = "") -> Picture:
    """The peak against one number among the settings.

    Args:
        traces: the runs, in any order; for several lines on one scale, the runs of each by its name.
        setting: the name of the setting on the x axis.
        title: by default, names the highest and the lowest.

    Raises:
        BadValue: when there is nothing to draw, or a run lacks the setting.
    """
    lines = traces if isinstance(traces, Mapping) else {"": traces}
    runs = [(name, trace) for name, line in lines.items() for trace in line]
    check_some(runs)
    if missing := [trace for _, trace in runs if setting not in trace.settings]:
        theirs = ", ".join(missing[0].settings) or "none"
        raise BadValue(f"{setting!r} is no setting of these runs: their settings are {theirs}.")
    named = {f"{name} {setting}={run.settings[setting]}".strip(): run for name, run in runs}
    picture = Picture(title or _compare(named))
    axes = picture.add_subplot()
    for (name, line), (color, look) in zip(lines.items(), cycle(LINES), strict=False):
        points = sorted((trace.settings[setting], trace.peak_allocated) for trace in line)
        axes.plot(*zip(*points, strict=True), look, color=color, label=name)
    axes.set_xlabel(setting.replace("_", " "))
    byte_axis(axes, max(trace.peak_allocated for _, trace in runs) * 1.15)
    write_title(axes, picture.sentence, sources(trace for _, trace in runs))
    if len(lines) > 1:
        draw_legend(picture)
    return picture


def stack(axes: Axes, traces: Mapping[str, Trace]) -> int:
    """A bar for each run, of what its peak is made of, with the peak on top; the highest of them."""
    bottom = pile(partial(axes.bar, list(traces)), [trace.by_category for trace in traces.values()])
    for place, (peak, trace) in enumerate(zip(bottom, traces.values(), strict=True)):
        text = format_bytes(peak)
        if trace.oom:
            text = "out of memory"
            if trace.oom.asked:
                text += f":\n{format_bytes(trace.oom.asked)} asked\nwith {format_bytes(trace.oom.in_use)} in use"
        write_above(axes, place, peak, text)
    return max(bottom)


def pile(
    draw: Callable[..., object],
    piles: Sequence[Mapping[Any, int]],
    *,
    shades: Sequence[float] | None = None,
    least: float = 0,
) -> list[int]:
    """Draw bars of which each is piled up from its categories, and return how long each is, in bytes.

    Args:
        draw: ``axes.bar`` or ``axes.barh`` with the places of the bars.
        piles: bytes by category, for each bar.
        shades: how strong the colours of each bar are, from 0 to 1; by default all are alike.
        least: bytes; a category that has no more in any bar is not named in the legend.
    """
    ends = [0] * len(piles)
    for category in (c for c in Category if any(c in parts for parts in piles)):
        lengths = [parts.get(category, 0) for parts in piles]
        colors = [(CATEGORY_COLORS[category], 0.85 * shade) for shade in shades or [1] * len(piles)]
        draw(lengths, 0.7, ends, color=colors, label=category.plural if max(lengths) > least else None)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    return ends


def write_above(axes: Axes, place: float, height: int, text: str) -> None:
    """Text on top of a bar."""
    ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}  # a limit may cross it
    offset: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}
    axes.annotate(text, (place, height), (0, 4), **offset, fontsize=SMALL, color=INK, bbox=ground)


def _draw_reserved(axes: Axes, trace: Trace, moments: Sequence[float]) -> int:
    """Hatch what is reserved and free; the most bytes that are reserved."""
    held = trace.reserved_at
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": (QUIET_INK, 0.5), "hatch": "///", "linewidth": 0}
    axes.fill_between(moments, trace.allocated, held, step="post", label="reserved and free", **look)
    axes.step(moments, held, where="post", color=QUIET_INK, linewidth=1)
    return max(held)


def _shade_phases(axes: Axes, trace: Trace, moments: Sequence[float]) -> None:
    """Forward and optimizer on a light ground, backward on white, as in the panel."""
    total = moments[-1] or 1
    place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    place |= {"ha": "center", "va": "top"}
    for phase, begin, end in trace.phases:
        first, last = moments[begin], moments[end]
        first = max([first, *(until for at, until in trace.waits if first <= at and until <= moments[begin + 1])])
        if phase in (Phase.FORWARD, Phase.OPTIMIZER):
            axes.axvspan(first, last, color=PHASE_SHADE, linewidth=0, zorder=0)
        if phase is not Phase.OTHER and last - first > 0.07 * total:
            axes.annotate(phase, ((first + last) / 2, 1), (0, -5), **place, color=QUIET_INK)


def _stripe_waits(axes: Axes, trace: Trace) -> None:
    """Stripe where a rank computes nothing and waits for others."""
    look: dict[str, Any] = {"edgecolor": ("white", 0.6), "hatch": "---", "linewidth": 0}
    for begin, end in trace.waits:
        axes.axvspan(begin, end, facecolor="none", **look)
    if trace.waits:  # stripes that a legend can show on a white ground
        axes.fill_between([], [], facecolor=QUIET_INK, **look, label="waits for other ranks")


def _mark_peak(axes: Axes, trace: Trace, moments: Sequence[float], *, above: int) -> None:
    # The needle stands for what was alive for too short a time to be drawn.
    if trace.oom:
        axes.vlines(moments[-1], 0, trace.allocated[-1], color=LIMIT, linewidth=0.6)
        axes.plot(moments[-1], trace.allocated[-1], "X", color=LIMIT, markersize=9, clip_on=False)
        return
    where = " · ".join(part for part in (trace.peak_phase, trace.peak_module) if part)
    at = moments[trace.peak_index]
    left = at < moments[-1] / 2
    mark_moment(axes, at, trace.peak_allocated, f"peak {trace.peak_text} · {where}", is_left=left, above=above)


def mark_moment(axes: Axes, at: float, size: int, text: str, *, is_left: bool, above: int = 0) -> None:
    """Draw a needle to a curve, and words beside it.

    Args:
        axes: with bytes upwards.
        at: where on the horizontal axis.
        size: of the curve there, in bytes.
        text: the words.
        is_left: whether that is in the left half, so that the words go to the right.
        above: bytes that the words stand above at least.
    """
    axes.vlines(at, 0, size, color=INK, linewidth=0.6)
    axes.plot(at, size, "o", color=INK, markersize=5)
    axes.annotate(
        text,
        (at, max(size, above)),
        (6 if is_left else -6, 6),
        textcoords="offset points",
        ha="left" if is_left else "right",
        color=INK,
        fontweight="bold",
        fontsize=SMALL,
    )


def _draw_limit(axes: Axes, limit: int, traces: Iterable[Trace]) -> None:
    devices = {trace.device for trace in traces}
    card = known_card(devices.pop()) if len(devices) == 1 else None
    name = card.name if card is not None and card.room == limit else "budget"
    axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1.5)
    # Outside, where no bar and no peak has its own text, and clear of the cross of a run that ended there.
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    axes.annotate(f"{name}\n{format_bytes(limit)}", (1, limit), (9, 0), **place, color=LIMIT, fontsize=SMALL)


def byte_axis(axes: Axes, top: float) -> None:
    """An axis of bytes from 0 to ``top``."""
    ticks = byte_ticks(int(top))
    axes.set_ylim(0, max(top, 1))
    axes.set_yticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.spines[["top", "right"]].set_visible(False)


def write_title(axes: Axes, sentence: str, note: str) -> None:
    """A sentence above a picture, and below it a smaller note."""
    whole = re.sub(r"(\d) (?=(Ki|Mi|Gi)?B\b)", "\\1\u00a0", capital(sentence))  # a number and its unit are on one line
    lines = wrap(note, NOTE_WIDTH) or [""]  # or the layout would make room for it, and the picture narrow
    pad = 20 + 15 * (len(lines) - 1)  # clear of an underscore
    axes.set_title(whole, loc="left", fontsize=11, color=INK, wrap=True, pad=pad)
    axes.annotate("\n".join(lines), (0, 1), (0, 5), **ABOVE, fontsize=SMALL, color=QUIET_INK, va="bottom")


def sources(traces: Iterable[Trace]) -> str:
    """Return the sources of runs (measured or predicted, and the device), as a note below a title."""
    notes = {
        f"{trace.source} on {trace.device}" + (", bytes of live tensor storages" if trace.peak_reserved is None else "")
        for trace in traces
    }
    return "; ".join(sorted(notes))


def draw_legend(picture: Picture) -> None:
    """Name the colours of a picture below it."""
    handles, labels = picture.axes[0].get_legend_handles_labels()
    narrow = {"columnspacing": 1.2, "handlelength": 1.4, "handletextpad": 0.5}  # five columns must fit
    picture.legend(handles, labels, loc="outside lower left", ncols=5, fontsize=SMALL, frameon=False, **narrow)


def _compare(traces: Mapping[str, Trace]) -> str:
    if len(traces) == 1:
        (only,) = traces
        return f"{only}: {traces[only].sentence}"
    failed = [name for name, trace in traces.items() if trace.oom]
    fitted = {name: trace.peak_allocated for name, trace in traces.items() if not trace.oom}
    words = []
    if fitted:
        low, high = min(fitted, key=fitted.__getitem__), max(fitted, key=fitted.__getitem__)
        if fitted[low] == fitted[high]:
            words.append(f"{format_bytes(fitted[low])} with {' and '.join(fitted)}")
        else:
            times = f"{fitted[high] / max(fitted[low], 1):.2f} times"
            words.append(f"least {format_bytes(fitted[low])} with {low}")
            words.append(f"most {format_bytes(fitted[high])} with {high}: {times}")
    return ", ".join(words + [f"out of memory with {' and '.join(failed)}"] * bool(failed))


def check_some(traces: Collection[object]) -> None:
    """Raise :class:`BadValue` where there is nothing to draw."""
    if not traces:
        raise BadValue("There is nothing to draw: give at least one trace.")
