"""The progress of a run, as the panel's picture shows it below the chart."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from memlab.trace import Step
from memlab.units import format_seconds


def progress(
    steps: Sequence[Step],
    count: int,
    *,
    name: str,
    earlier: Sequence[Sequence[Step]] = (),
    ranks: Sequence[Sequence[Step]] = (),
    sample: str = "",
    going: bool = False,
) -> dict[str, Any]:
    """The losses and the peaks of every step so far, of ``count``, as numbers, texts, lists and dictionaries.

    Args:
        name: of what is trained, and where.
        earlier: the steps of earlier runs, whose losses are drawn behind.
        ranks: the steps of each rank.
        sample: what the model says now.
        going: whether more steps follow.
    """
    return {
        "name": name,
        "count": count,
        "going": going,
        "losses": _losses(steps),
        "peaks": [step.peak_allocated for step in steps],
        "earlier": [_losses(run) for run in earlier],
        "ranks": [max((step.peak_allocated or 0 for step in rank), default=0) for rank in ranks],
        "xrays": sum(step.xrayed for step in steps),
        "sample": sample,
    }


def _losses(steps: Sequence[Step]) -> list[Any]:
    return [step.to_plain()["loss"] for step in steps]  # JSON has no NaN


def seconds_left(steps: Sequence[Step], count: int) -> float | None:
    """Seconds that the rest of a run takes if its steps are like the newest ones; None before there is one."""
    seconds = [step.seconds for step in steps[-10:] if step.seconds is not None]
    return median(seconds) * (count - len(steps)) if seconds else None


def stop_text(steps: Sequence[Step], count: int) -> str:
    """The words on the button that ends a run: ``Stop · 35 of 60 · 4 s``."""
    left = seconds_left(steps, count)
    return " · ".join(["Stop", f"{len(steps)} of {count}", *([format_seconds(left)] if left else [])])
