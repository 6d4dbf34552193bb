"""Matplotlib figures of traces. Each carries the sentence that says the same in words."""

import base64
import html as markup
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from memlab.errors import BadValue
from memlab.palette import BLUE, CATEGORY_COLORS, INK, LIMIT, PHASE_SHADE, QUIET_INK
from memlab.trace import Category, Phase, Trace
from memlab.units import byte_ticks, format_bytes, parse_bytes


class Picture(Figure):
    """A figure that any notebook front end shows as a PNG, with ``sentence`` as its text."""

    def __init__(self, sentence: str, height: float = 3.4):
        # No pyplot: nothing global is touched, so any thread may draw.
        super().__init__(figsize=(8, height), dpi=96, layout="constrained")
        self.sentence = sentence

    def png(self) -> bytes:
        """The figure as a PNG file, in a palette of 128 colours: a third of the size, which notebooks carry."""
        canvas = FigureCanvasAgg(self)
        canvas.draw()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(128)
        description = PngInfo()
        description.add_itxt("Description", self.sentence)
        file = io.BytesIO()
        image.save(file, format="png", optimize=True, pnginfo=description)
        return file.getvalue()

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        return {"image/png": base64.b64encode(self.png()).decode(), "text/plain": self.sentence}


def timeline(trace: Trace, *, budget: str | int | None = None) -> Picture:
    """Allocated bytes by category through the X-rayed step, the phases and the peak named.

    Args:
        trace: the run to show.
        budget: bytes, or text such as ``"15 GiB"``, drawn as a line.
    """
    picture = Picture(trace.sentence)
    axes = picture.add_subplot()
    moments = range(len(trace.allocated))
    _shade_phases(axes, trace)
    below = [0] * len(moments)
    for category, values in trace.timeline.items():
        above = [base + value for base, value in zip(below, values, strict=True)]
        style = {"color": CATEGORY_COLORS[category], "label": category.plural, "alpha": 0.85, "linewidth": 0}
        axes.fill_between(moments, below, above, step="post", **style)
        below = above
    limit = trace.oom.limit if trace.oom and budget is None else budget
    _mark_peak(axes, trace)
    _byte_axis(axes, max(trace.peak_allocated, 0 if limit is None else parse_bytes(limit)) * 1.3)
    if limit is not None:
        _draw_limit(axes, parse_bytes(limit))
    axes.set_xlim(0, max(len(trace.events), 1))
    axes.set_xlabel(f"events of step {trace.xray_step} (an allocation or a free each)", color=QUIET_INK)
    _title(axes, trace.sentence, [trace])
    _legend(picture)
    return picture


def bars(traces: Mapping[str, Trace], *, budget: str | int | None = None, title: str = "") -> Picture:
    """What each run's peak is made of, side by side, the peak written on top.

    Args:
        traces: the runs, by the name to write under each.
        budget: bytes, or text such as ``"15 GiB"``, drawn as a line.
        title: by default, names the highest and the lowest.

    Raises:
        BadValue: when there is nothing to draw.
    """
    _check_some(traces)
    sentence = title or _compare(traces)
    picture = Picture(sentence)
    axes = picture.add_subplot()
    used = [c for c in Category if any(c in trace.by_category for trace in traces.values())]
    bottom = [0] * len(traces)
    for category in used:
        heights = [trace.by_category.get(category, 0) for trace in traces.values()]
        axes.bar(list(traces), heights, 0.7, bottom, color=CATEGORY_COLORS[category], label=category.plural, alpha=0.85)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    for place, (peak, trace) in enumerate(zip(bottom, traces.values(), strict=True)):
        text = f"out of memory\nat {format_bytes(peak)}" if trace.oom else format_bytes(peak)
        axes.annotate(text, (place, peak), (0, 3), textcoords="offset points", ha="center", fontsize=9, color=INK)
    _byte_axis(axes, max(*bottom, 0 if budget is None else parse_bytes(budget)) * 1.15)
    if budget is not None:
        _draw_limit(axes, parse_bytes(budget))
    _title(axes, sentence, traces.values())
    _legend(picture)
    return picture


def curve(traces: Sequence[Trace], setting: str, *, title: str = "") -> Picture:
    """The peak against one number among the settings.

    Args:
        traces: the runs, in any order.
        setting: the name of the setting on the x axis.
        title: by default, names the highest and the lowest.

    Raises:
        BadValue: when there is nothing to draw, or a run lacks the setting.
    """
    _check_some(traces)
    missing = [trace for trace in traces if setting not in trace.settings]
    if missing:
        legal = ", ".join(missing[0].settings) or "none"
        raise BadValue(f"{setting!r} is no setting of these runs: their settings are {legal}.")
    points = sorted((trace.settings[setting], trace) for trace in traces)
    named = {f"{setting}={value}": trace for value, trace in points}
    picture = Picture(title or _compare(named))
    axes = picture.add_subplot()
    peaks = [trace.peak_allocated for _, trace in points]
    axes.plot([value for value, _ in points], peaks, "o-", color=BLUE)
    axes.set_xlabel(setting.replace("_", " "))
    _byte_axis(axes, max(peaks) * 1.15)
    _title(axes, picture.sentence, traces)
    return picture


def html(trace: Trace) -> str:
    """The trace as a notebook shows it: the picture, and the sentence under it."""
    encoded = base64.b64encode(timeline(trace).png()).decode()
    sentence = markup.escape(trace.sentence)
    return f'<img alt="{sentence}" src="data:image/png;base64,{encoded}"><p>{sentence}</p>'


def _shade_phases(axes: Axes, trace: Trace) -> None:
    """Forward and optimizer on a light ground, backward on white, as in the panel."""
    total = max(len(trace.events), 1)
    for phase, first, last in trace.phases:
        if phase in (Phase.FORWARD, Phase.OPTIMIZER):
            axes.axvspan(first, last, color=PHASE_SHADE, linewidth=0, zorder=0)
        if phase is not Phase.OTHER and last - first > 0.07 * total:
            axes.annotate(
                phase,
                ((first + last) / 2, 1),
                (0, -5),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va="top",
                color=QUIET_INK,
            )


def _mark_peak(axes: Axes, trace: Trace) -> None:
    if trace.oom:
        axes.plot(len(trace.events), trace.allocated[-1], "X", color=LIMIT, markersize=9, clip_on=False)
        return
    where = " · ".join(part for part in (trace.peak_phase, trace.peak_module) if part)
    left = trace.peak_index < len(trace.allocated) / 2
    axes.plot(trace.peak_index, trace.peak_allocated, "o", color=INK, markersize=5)
    axes.annotate(
        f"peak {format_bytes(trace.peak_allocated)} · {where}",
        (trace.peak_index, trace.peak_allocated),
        (6 if left else -6, 6),
        textcoords="offset points",
        ha="left" if left else "right",
        color=INK,
        fontweight="bold",
        fontsize=9,
    )


def _draw_limit(axes: Axes, limit: int) -> None:
    axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1.5)
    text = f"budget {format_bytes(limit)}"
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    axes.annotate(text, (0, limit), (4, 4), **place, color=LIMIT, fontsize=9, bbox=ground)


def _byte_axis(axes: Axes, top: float) -> None:
    ticks = byte_ticks(int(top))
    axes.set_ylim(0, max(top, 1))
    axes.set_yticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.spines[["top", "right"]].set_visible(False)


def _title(axes: Axes, sentence: str, traces) -> None:
    notes = {
        f"{trace.source} on {trace.device}"
        + (", bytes of live tensor storages" if trace.peak_reserved is None and trace.source == "measured" else "")
        for trace in traces
    }
    axes.set_title(_capital(sentence), loc="left", fontsize=10.5, color=INK, wrap=True, pad=18)
    axes.text(0, 1.02, "; ".join(sorted(notes)), transform=axes.transAxes, fontsize=8, color=QUIET_INK, va="bottom")


def _legend(picture: Picture) -> None:
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower left", ncols=5, fontsize=8, frameon=False)


def _compare(traces: Mapping[str, Trace]) -> str:
    low, high = (pick(traces, key=lambda name: traces[name].peak_allocated) for pick in (min, max))
    if low == high:
        return f"{low}: {traces[low].sentence}"
    least, most = traces[low].peak_allocated, traces[high].peak_allocated
    return f"least {format_bytes(least)} with {low}, most {format_bytes(most)} with {high}: {most / least:.2f} times"


def _check_some(traces) -> None:
    if not traces:
        raise BadValue("There is nothing to draw: give at least one trace.")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
