"""Pictures of an allocator: what it did, its segments, and the blocks in them."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from memlab.palette import BLUE, GREY, INK, QUIET_INK
from memlab.plots import SMALL, Picture, byte_axis, draw_legend, mark_moment, write_title
from memlab.units import byte_ticks, format_bytes

BLOCK_STYLES: dict[str, dict[str, Any]] = {
    "in use": {"facecolor": BLUE, "edgecolor": "white", "hatch": None},
    "free": {"facecolor": "white", "edgecolor": GREY, "hatch": "////"},
}

MOST_ROWS = 600  # of a segment map: each one dot high
MOST_POINTS = 2000  # of a history: two for each dot of the picture


def allocator_history(
    allocated: Sequence[int], reserved: Sequence[int], *, moment: int, title: str, note: str
) -> Picture:
    """Allocated and reserved bytes through an allocator's history, with one moment marked.

    Args:
        allocated: bytes after 0, 1, 2, ... events.
        reserved: bytes, likewise.
        moment: the number of events to mark.
        title: the sentence that says what is to be seen.
        note: written small below it.
    """
    picture = Picture(title)
    axes = picture.add_subplot()
    places = sorted({*_highest(allocated), moment})
    axes.fill_between(places, [allocated[at] for at in places], step="post", color=BLUE, alpha=0.85, label="allocated")
    axes.step(places, [reserved[at] for at in places], where="post", color=QUIET_INK, linewidth=1, label="reserved")
    size, is_left = allocated[moment], moment < len(allocated) / 2
    mark_moment(axes, moment, size, format_bytes(size), is_left=is_left, above=reserved[moment])
    byte_axis(axes, max(reserved) * 1.15)
    axes.set_xlim(0, max(len(allocated) - 1, 1))
    axes.set_xlabel("recorded events (allocations, frees and segments)", color=QUIET_INK)
    write_title(axes, title, note)
    draw_legend(picture)
    return picture


def _highest(sizes: Sequence[int]) -> list[int]:
    """Places to draw: the highest of each stretch, so that no peak is left out, and both ends."""
    stretch = math.ceil(len(sizes) / MOST_POINTS)
    begins = range(0, len(sizes), stretch)
    tops = [max(range(at, min(at + stretch, len(sizes))), key=sizes.__getitem__) for at in begins]
    return [0, *tops, len(sizes) - 1]


def segment_map(snapshot: Sequence[Mapping[str, Any]], *, title: str = "") -> Picture:
    """Draw the allocator's memory: a row for each segment, the largest first, with its blocks in use and free.

    Args:
        snapshot: from :meth:`memlab.allocator.CachingAllocator.snapshot` or ``torch.cuda.memory_snapshot()``.
        title: what the sentence begins with.
    """
    sentence = ": ".join(part for part in (title, _segment_sentence(snapshot)) if part)
    rows = sorted(snapshot, key=lambda segment: (-segment["total_size"], segment["address"]))[:MOST_ROWS]
    row_height = min(0.25, 6 / max(len(rows), 1))  # inches
    picture = Picture(sentence, height=max(2.6, 1.9 + row_height * len(rows)))
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
        named = None if thin else state
        axes.add_collection(PolyCollection(corners, label=named, linewidths=borders or [0], **look))
        if thin:  # without a border, the legend would show nothing for what is white
            axes.barh(0, 0, label=state, linewidth=0.7, **look | {"edgecolor": QUIET_INK})
    sizes = [segment["total_size"] for segment in rows]
    if thin:  # one line around all of them: what is white inside of it is held, and free
        edges = [row - height / 2 for row in range(len(rows) + 1)]
        axes.stairs(sizes, edges, orientation="horizontal", color=QUIET_INK, linewidth=1)
    else:
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
