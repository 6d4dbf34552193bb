"""The schedules of a pipeline: which stage works on which micro-batch, when it waits, and how many it holds."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from matplotlib.axes import Axes

from memlab.palette import BLUE, INK, QUIET_INK
from memlab.plots import SMALL, Picture, check_some, draw_legend, write_title

FORWARD, BACKWARD = BLUE, "#DE8F05"
WORK = {"forward": FORWARD, "backward": BACKWARD}
ROW = 0.3  # inches
HEAD = 1.1  # rows, for the name of a schedule
NAMED = 3  # slots, from which on a wait has room for its name
Slots = Mapping[int, tuple[str, int]]


def schedule(schedules: Mapping[str, Sequence[Slots]], *, title: str) -> Picture:
    """Draw when each stage of a pipeline works, on which micro-batch, when it waits and how many it holds at most.

    The schedules stand one below the other, on one axis of time. A stage holds a micro-batch from its forward to the
    end of its backward.

    Args:
        schedules: by the name to write above: of each stage, what it does in which slot of time, such as
            ``("forward", 3)`` or ``("backward", 3)``.
        title: the sentence that says the same.

    Raises:
        BadValue: when there is nothing to draw.
    """
    check_some(schedules)
    for stages in schedules.values():
        check_some(stages)
    rows = sum(HEAD + len(stages) for stages in schedules.values())
    picture = Picture(title, height=1.3 + ROW * rows)
    axes = picture.add_subplot()
    ends = {name: 1 + max(max(slots) for slots in stages) for name, stages in schedules.items()}
    longest = max(ends.values())
    ticks: dict[float, str] = {}
    top = 0.0
    for name, stages in schedules.items():
        places = [top + HEAD + row for row in range(len(stages))]
        end = ends[name]
        idle = sum(end - len(slots) for slots in stages)
        told = f"{name}: the bubble is {idle / (end * len(stages)):.0%} of the time"
        axes.text(0, top + 0.55, told, va="bottom", fontsize=SMALL, color=INK)
        for place, slots in zip(places, stages, strict=True):
            _draw_row(axes, place, slots, end)
            axes.text(longest + 0.3, place, f"holds {_most_held(slots)}", va="center", fontsize=SMALL, color=INK)
        _name_bubble(axes, places, stages, end)
        ticks |= {place: f"stage {row}" for row, place in enumerate(places)}
        top += HEAD + len(stages)
    for work, color in (*WORK.items(), ("bubble: the stage waits", "none")):
        axes.broken_barh([], (0, 1), facecolors=color, **({} if work in WORK else _IDLE), label=work)
    axes.set(xlim=(0, 1.12 * longest), ylim=(top - 0.4, -0.1))
    axes.set_yticks([*ticks], [*ticks.values()], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.set_xlabel(f"time, in {longest} slots", fontsize=SMALL, color=QUIET_INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_bounds(0, longest)
    write_title(axes, title, "the number of the micro-batch in each slot; right: how many the stage holds at most")
    draw_legend(picture)
    return picture


_IDLE: dict[str, Any] = {"edgecolors": QUIET_INK, "hatch": "////", "linewidth": 0.5}


def _draw_row(axes: Axes, place: float, slots: Slots, end: int) -> None:
    for work, color in WORK.items():
        places = [(slot, 1) for slot, (what, _) in slots.items() if what == work]
        axes.broken_barh(places, (place - 0.4, 0.8), facecolors=color, edgecolors="white")
    axes.broken_barh(_waits(slots, end), (place - 0.4, 0.8), facecolors="none", **_IDLE, alpha=0.45)
    for slot, (work, batch) in slots.items():
        color = "white" if work == "forward" else INK  # a contrast of 4.5 with the ground
        axes.text(slot + 0.5, place, str(batch), ha="center", va="center", fontsize=SMALL, color=color)


def _waits(slots: Slots, end: int) -> list[tuple[int, int]]:
    """Return where each wait begins and how long it is, in slots."""
    edges = [-1, *sorted(slots), end]
    return [(a + 1, b - a - 1) for a, b in pairwise(edges) if b > a + 1]


def _name_bubble(axes: Axes, places: Sequence[float], stages: Sequence[Slots], end: int) -> None:
    waits = [
        (long, first, place) for place, slots in zip(places, stages, strict=True) for first, long in _waits(slots, end)
    ]
    long, first, place = max(waits, key=lambda wait: wait[0], default=(0, 0, 0.0))
    if long >= NAMED:
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        middle = first + long / 2
        axes.text(middle, place, "bubble", ha="center", va="center", fontsize=SMALL, color=INK, bbox=ground)


def _most_held(slots: Slots) -> int:
    changes = (1 if work == "forward" else -1 for _, (work, _) in sorted(slots.items()))
    return max(accumulate(changes, initial=0))
