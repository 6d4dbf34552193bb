"""Matplotlib figures of traces and of segments. Each carries the sentence that says the same in words."""

import base64
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import cycle, groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from memlab.errors import BadValue
from memlab.palette import BLUE, CATEGORY_COLORS, GREY, INK, LIMIT, ORANGE, PHASE_SHADE, QUIET_INK
from memlab.text import capital
from memlab.trace import Category, Phase, Trace
from memlab.units import byte_ticks, format_bytes, parse_bytes
from memlab.vgpu.cards import CARDS

BLOCK_STYLES: dict[str, dict[str, Any]] = {
    "in use": {"facecolor": BLUE, "edgecolor": "white", "hatch": None},
    "free": {"facecolor": (GREY, 0.3), "edgecolor": GREY, "hatch": "////"},
}
ABOVE: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}  # where a picture's notes stand
LINES = [(BLUE, "o-"), (ORANGE, "s--"), (INK, "^:")]
SMALL = 10  # points: 13 pixels, the least that is legible from the last row
MOST_ROWS = 600  # of a segment map: each one dot high


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

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"image/png": base64.b64encode(self.png()).decode(), "text/plain": self.sentence}


def timeline(trace: Trace, *, budget: str | int | None = None, note: str = "") -> Picture:
    """Allocated bytes by category through the X-rayed step, the phases and the peak named.

    Args:
        trace: the run to show.
        budget: bytes, or text such as ``"15 GiB"``, drawn as a line.
        note: written small below the sentence; by default where the run comes from.
    """
    picture = Picture(trace.sentence)
    axes = picture.add_subplot()
    moments = range(len(trace.allocated))
    _shade_phases(axes, trace)
    below = [0] * len(moments)
    for category, values in trace.timeline.items():
        above = [base + value for base, value in zip(below, values, strict=True)]
        look: dict[str, Any] = {"color": CATEGORY_COLORS[category], "alpha": 0.85, "linewidth": 0}
        axes.fill_between(moments, below, above, step="post", label=category.plural, **look)
        below = above
    limit = trace.oom.limit if trace.oom and budget is None else budget
    _mark_peak(axes, trace)
    byte_axis(axes, max(trace.peak_allocated, 0 if limit is None else parse_bytes(limit)) * 1.3)
    if limit is not None:
        _draw_limit(axes, parse_bytes(limit), [trace])
    axes.set_xlim(0, max(len(trace.events), 1))
    axes.set_xlabel(f"events of step {trace.xray_step} (an allocation or a free each)", color=QUIET_INK)
    write_title(axes, trace.sentence, note or sources([trace]))
    draw_legend(picture)
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


def segment_map(snapshot: Sequence[Mapping[str, Any]], *, title: str = "") -> Picture:
    """What the allocator holds: a row for each segment, the largest first, with its blocks in use and free.

    Args:
        snapshot: from :meth:`memlab.allocator.CachingAllocator.snapshot` or ``torch.cuda.memory_snapshot()``.
        title: what the sentence begins with.
    """
    sentence = ": ".join(part for part in (title, _segment_sentence(snapshot)) if part)
    rows = sorted(snapshot, key=lambda segment: (-segment["total_size"], segment["address"]))[:MOST_ROWS]
    row_height = min(0.25, 6 / max(len(rows), 1))  # inches
    picture = Picture(sentence, height=1.9 + row_height * len(rows))
    axes = picture.add_subplot()
    if not rows:
        axes.set_axis_off()
        write_title(axes, sentence, "")
        return picture
    _draw_blocks(axes, rows, thin=row_height < 0.07)
    _name_rows(axes, rows, apart=math.ceil(0.2 / row_height))
    _segment_axes(axes, rows)
    write_title(axes, sentence, "a row for each segment, with its pool on the left and its size on the right")
    draw_legend(picture)
    return picture


def stack(axes: Axes, traces: Mapping[str, Trace]) -> int:
    """A bar for each run, of what its peak is made of, with the peak on top; the highest of them."""
    bottom = [0] * len(traces)
    for category in (c for c in Category if any(c in trace.by_category for trace in traces.values())):
        heights = [trace.by_category.get(category, 0) for trace in traces.values()]
        axes.bar(list(traces), heights, 0.7, bottom, color=CATEGORY_COLORS[category], label=category.plural, alpha=0.85)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    for place, (peak, trace) in enumerate(zip(bottom, traces.values(), strict=True)):
        text = f"out of memory\nat {format_bytes(peak)}" if trace.oom else format_bytes(peak)
        write_above(axes, place, peak, text)
    return max(bottom)


def write_above(axes: Axes, place: int, height: int, text: str) -> None:
    """Text on top of a bar."""
    ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}  # a limit may cross it
    offset: dict[str, Any] = {"textcoords": "offset points", "ha": "center"}
    axes.annotate(text, (place, height), (0, 4), **offset, fontsize=SMALL, color=INK, bbox=ground)


def _shade_phases(axes: Axes, trace: Trace) -> None:
    """Forward and optimizer on a light ground, backward on white, as in the panel."""
    total = max(len(trace.events), 1)
    place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    place |= {"ha": "center", "va": "top"}
    for phase, first, last in trace.phases:
        if phase in (Phase.FORWARD, Phase.OPTIMIZER):
            axes.axvspan(first, last, color=PHASE_SHADE, linewidth=0, zorder=0)
        if phase is not Phase.OTHER and last - first > 0.07 * total:
            axes.annotate(phase, ((first + last) / 2, 1), (0, -5), **place, color=QUIET_INK)


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
        fontsize=SMALL,
    )


def _draw_limit(axes: Axes, limit: int, traces: Iterable[Trace]) -> None:
    devices = {trace.device for trace in traces}
    card = CARDS.get(devices.pop()) if len(devices) == 1 else None
    name = card.name if card is not None and card.room == limit else "budget"
    axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1.5)
    # Outside, where no bar and no peak has its own text.
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    axes.annotate(f"{name}\n{format_bytes(limit)}", (1, limit), (5, 0), **place, color=LIMIT, fontsize=SMALL)


def byte_axis(axes: Axes, top: float) -> None:
    """An axis of bytes from 0 to ``top``."""
    ticks = byte_ticks(int(top))
    axes.set_ylim(0, max(top, 1))
    axes.set_yticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.spines[["top", "right"]].set_visible(False)


def write_title(axes: Axes, sentence: str, note: str) -> None:
    """A sentence above a picture, and below it a smaller note."""
    axes.set_title(capital(sentence), loc="left", fontsize=11, color=INK, wrap=True, pad=18)
    axes.annotate(note, (0, 1), (0, 5), **ABOVE, fontsize=SMALL, color=QUIET_INK, va="bottom")


def sources(traces: Iterable[Trace]) -> str:
    """Where runs come from, as a note below a title."""
    notes = {
        f"{trace.source} on {trace.device}" + (", bytes of live tensor storages" if trace.peak_reserved is None else "")
        for trace in traces
    }
    return "; ".join(sorted(notes))


def _segment_sentence(snapshot: Sequence[Mapping[str, Any]]) -> str:
    blocks = [block for segment in snapshot for block in segment["blocks"]]
    free = [block["size"] for block in blocks if _is_free(block)]
    held = sum(segment["total_size"] for segment in snapshot)
    count = len(snapshot)
    parts = [
        f"{count} {'segment holds' if count == 1 else 'segments hold'} {format_bytes(held)}, "
        f"{format_bytes(held - sum(free))} in use",
        f"the largest free block is {format_bytes(max(free))}" if free else "no block is free",
    ]
    if count > MOST_ROWS:
        parts.append(f"the {MOST_ROWS} largest are drawn, {count - MOST_ROWS} smaller ones are not")
    return "; ".join(parts) if count else "no segment is held"


def _is_free(block: Mapping[str, Any]) -> bool:
    # A block that waits for another stream is in use still; PyTorch has had two names for that.
    return block["state"] == "inactive"


def _draw_blocks(axes: Axes, rows: Sequence[Mapping[str, Any]], thin: bool) -> None:
    """Every block in its row. Gaps, borders and hatches are left out where they would hide more than they show."""
    height, longest = 1 if thin else 0.72, rows[0]["total_size"]
    for state, style in BLOCK_STYLES.items():
        boxes = [
            (block["address"] - segment["address"], row - height / 2, block["size"])
            for row, segment in enumerate(rows)
            for block in segment["blocks"]
            if _is_free(block) == (state == "free")
        ]
        corners = [[(x, y), (x + width, y), (x + width, y + height), (x, y + height)] for x, y, width in boxes]
        borders = [0 if thin or width < longest / 100 else 0.7 for *_, width in boxes]
        look = style | {"hatch": None if thin else style["hatch"], "antialiased": not thin}
        axes.add_collection(PolyCollection(corners, label=state, linewidths=borders or [0], **look))
    if not thin:
        sizes = [segment["total_size"] for segment in rows]
        axes.barh(range(len(rows)), sizes, height, facecolor="none", edgecolor=QUIET_INK, linewidth=0.7)


def _name_rows(axes: Axes, rows: Sequence[Mapping[str, Any]], apart: int) -> None:
    """Write each row's pool and size; rows too narrow for text share one, in the middle of those that are alike."""
    names = [(segment["segment_type"], segment["total_size"]) for segment in rows]
    alike = [[row] for row in range(len(rows))]
    if apart > 1:
        alike = [list(group) for _, group in groupby(range(len(rows)), names.__getitem__)]
    named: list[int] = []
    for group in alike:
        row = group[len(group) // 2]
        if named and (row - named[-1] < apart or 2 * len(group) < apart):
            continue  # it would touch the text above, or lie on the longer rows above
        named.append(row)
        size = names[row][1]
        text = f"{len(group)} of {format_bytes(size)}" if len(group) > 1 else format_bytes(size)
        axes.annotate(text, (size, row), (4, 0), textcoords="offset points", va="center", fontsize=SMALL, color=INK)
    axes.set_yticks(named, [names[row][0] for row in named], fontsize=SMALL, color=QUIET_INK)


def _segment_axes(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    longest = rows[0]["total_size"]
    ticks = byte_ticks(longest)
    axes.set_xticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(0, longest * 1.13)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def draw_legend(picture: Picture) -> None:
    """What the colours of a picture mean, below it."""
    handles, labels = picture.axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower left", ncols=5, fontsize=SMALL, frameon=False)


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
