"""Pictures of an allocator: what it did, its segments, and the blocks in them."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from memlab.palette import BLUE, GREY, INK, LIMIT, QUIET_INK
from memlab.plots import SMALL, Picture, byte_axis, draw_legend, mark_moment, write_title
from memlab.units import byte_ticks, format_bytes

BLOCK_STYLES: dict[str, dict[str, Any]] = {
    "in use": {"facecolor": BLUE, "edgecolor": "white", "hatch": None},
    "free": {"facecolor": "white", "edgecolor": GREY, "hatch": "////"},
}

MOST_ROWS = 600  # of a segment map: each one dot high
# Inches of a segment map: a row and all rows at most, a row that has room for borders and hatches, and for a text.
ROW, ALL_ROWS, THIN, TEXT = 0.25, 6.0, 0.07, 0.2
GAP = 0.14  # of a row's height, above its blocks and below them
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


def segment_map(snapshot: Sequence[Mapping[str, Any]], *, title: str = "", asked: int = 0) -> Picture:
    """Draw the allocator's memory: a row for each segment, the largest first, with its blocks in use and free.

    Args:
        snapshot: from :meth:`memlab.allocator.CachingAllocator.snapshot` or ``torch.cuda.memory_snapshot()``.
        title: what the sentence begins with.
        asked: bytes of a request that failed, drawn above the segments for comparison.
    """
    sentence = ": ".join(part for part in (title, _segment_sentence(snapshot)) if part)
    rows = sorted(snapshot, key=lambda segment: (-segment["total_size"], segment["address"]))[:MOST_ROWS]
    heights = _row_heights([segment["total_size"] for segment in rows])
    picture = Picture(sentence, height=max(2.6, 1.9 + sum(heights)))
    axes = picture.add_subplot()
    if not rows:
        axes.set_axis_off()
        write_title(axes, sentence, "")
        return picture
    edges = [0.0, *accumulate(heights)]
    tall = sum(height >= THIN for height in heights)
    if tall:
        _draw_blocks(axes, rows[:tall], edges[: tall + 1])
    if tall < len(rows):
        _draw_thin_blocks(axes, rows[tall:], edges[tall:], is_named=not tall)
    _name_rows(axes, rows, edges)
    _segment_axes(axes, max(rows[0]["total_size"], asked), edges[-1])
    if asked:
        _draw_request(axes, asked)
    write_title(axes, sentence, "a row for each segment, with its pool on the left and its size on the right")
    draw_legend(picture)
    return picture


def _row_heights(sizes: Sequence[int]) -> list[float]:
    """Inches for each row. Of many, large segments have taller ones, because the free blocks that matter lie there."""
    large = sum(size > sizes[0] / 10 for size in sizes)
    small = len(sizes) - large
    alike = min(ROW, ALL_ROWS / max(len(sizes), 1))
    tall = max(alike, min(ROW, ALL_ROWS / 2 / max(large, 1)))
    return [tall] * large + [min(ROW, (ALL_ROWS - large * tall) / max(small, 1))] * small


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


def _draw_blocks(axes: Axes, rows: Sequence[Mapping[str, Any]], edges: Sequence[float]) -> None:
    """Every block in its row, each row with a line around it and a gap below; narrow blocks without borders."""
    inner = [(top + GAP * (bottom - top), bottom - GAP * (bottom - top)) for top, bottom in pairwise(edges)]
    for state, style in BLOCK_STYLES.items():
        boxes = _boxes(rows, inner, state)
        borders = [0 if right - left < rows[0]["total_size"] / 100 else 0.7 for (left, _), (right, _), *_ in boxes]
        axes.add_collection(PolyCollection(boxes, label=state, linewidths=borders or [0], **style))
    lines: dict[str, Any] = {"facecolor": "none", "edgecolor": QUIET_INK, "linewidth": 0.7}
    for segment, (top, bottom) in zip(rows, inner, strict=True):
        axes.barh((top + bottom) / 2, segment["total_size"], bottom - top, **lines)


def _draw_thin_blocks(axes: Axes, rows: Sequence[Mapping[str, Any]], edges: Sequence[float], *, is_named: bool) -> None:
    """Every block in its row, without gaps, borders and hatches, which would hide more than they show."""
    for state, style in BLOCK_STYLES.items():
        look = style | {"hatch": None, "antialiased": False}
        boxes = _boxes(rows, list(pairwise(edges)), state)
        axes.add_collection(PolyCollection(boxes, linewidths=0, **look))
        if is_named:  # without a border, the legend would show nothing for what is white
            axes.barh(0, 0, label=state, linewidth=0.7, **look | {"edgecolor": QUIET_INK})
    # One line around all of them: what is white inside of it is held, and free.
    sizes = [segment["total_size"] for segment in rows]
    axes.stairs(sizes, edges, orientation="horizontal", color=QUIET_INK, linewidth=1)


def _boxes(
    rows: Sequence[Mapping[str, Any]], inner: Sequence[tuple[float, float]], state: str
) -> list[list[tuple[float, float]]]:
    """Return the corners of all blocks in this state."""
    spans = (
        (block["address"] - segment["address"], block["size"], top, bottom)
        for segment, (top, bottom) in zip(rows, inner, strict=True)
        for block in segment["blocks"]
        if _is_free(block) == (state == "free")
    )
    return [[(x, top), (x + size, top), (x + size, bottom), (x, bottom)] for x, size, top, bottom in spans]


def _name_rows(axes: Axes, rows: Sequence[Mapping[str, Any]], edges: Sequence[float]) -> None:
    """Write each row's pool and size; rows too narrow for text share one, in the middle of those that are alike."""
    begin, last, named = 0, -TEXT, []
    for (kind, size), alike in groupby(rows, key=lambda segment: (segment["segment_type"], segment["total_size"])):
        end = begin + len(list(alike))
        are_narrow = edges[begin + 1] - edges[begin] < TEXT
        for first, behind in [(begin, end)] if are_narrow else pairwise(range(begin, end + 1)):
            top, bottom = edges[first], edges[behind]
            middle = (top + bottom) / 2
            if middle - last < TEXT or bottom - top < TEXT / 2:
                continue  # it would touch the text above, or lie on the longer rows above
            last = middle
            named.append((middle, kind))
            text = f"{behind - first} of {format_bytes(size)}" if behind - first > 1 else format_bytes(size)
            look: dict[str, Any] = {"va": "center", "fontsize": SMALL, "color": INK}
            axes.annotate(text, (size, middle), (4, 0), textcoords="offset points", **look)
        begin = end
    axes.set_yticks([at for at, _ in named], [kind for _, kind in named], fontsize=SMALL, color=QUIET_INK)


def _segment_axes(axes: Axes, longest: int, height: float) -> None:
    ticks = byte_ticks(longest)
    axes.set_xticks([count for count, _ in ticks], [text for _, text in ticks])
    axes.set_xlim(0, longest * 1.13)
    axes.set_ylim(height + 0.02, -0.02)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_request(axes: Axes, asked: int) -> None:
    """Draw what was asked for above the first row, where there is room made for it."""
    bottom, _ = axes.get_ylim()
    axes.set_ylim(bottom, -1.6 * ROW)
    axes.barh(-0.9 * ROW, asked, 0.72 * ROW, facecolor="none", edgecolor=LIMIT, linestyle="--", linewidth=1.5)
    look: dict[str, Any] = {"va": "center", "fontsize": SMALL, "color": LIMIT}
    axes.annotate(f"asked for: {format_bytes(asked)}", (0, -0.9 * ROW), (6, 0), textcoords="offset points", **look)
