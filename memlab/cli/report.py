"""A trace as lines of text."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.alive import largest_kinds
from memlab.files import write_atomically
from memlab.text import capital
from memlab.units import format_bytes

if TYPE_CHECKING:
    from memlab.trace import Trace

KINDS = 5  # of tensors that are named


def output_file(text: str) -> Path:
    """The path of a file that shall be written, from the command line.

    Raises:
        ArgumentTypeError: it names a folder; pathlib would forget the slash, and a file of that name be overwritten.
    """
    if text.endswith(("/", os.sep)):
        raise argparse.ArgumentTypeError(f"{text!r} names a folder: give a file in it.")
    return Path(text)


def show(
    title: str, trace: "Trace", file: Path | None, source: str, *, room: int | None = None, varies: bool = False
) -> None:
    """Print what a run took, and write its trace to the file, if there is one.

    Args:
        source: the file that has the loop's lines.
        room: bytes that there are for it, of which the second line then says whether they suffice.
        varies: whether steps that were not seen may need more.
    """
    print("\n".join(report(title, trace, source, room=room, varies=varies)))
    if file is not None:
        write_atomically(file, trace.to_json())
        print(f"The trace is in {file}")


def title(target: str, trace: "Trace") -> str:
    """Return the call that was measured or predicted, as text: ``train(batch_size=8)``."""
    given = ", ".join(f"{key}={value!r}" for key, value in trace.settings.items())
    return f"{target.rpartition(':')[2]}({given})"


def file_of(target: str) -> str:
    """The name of the file of a target, ``"train.py"`` of ``"scripts/train.py:train"``."""
    return Path(target.rpartition(":")[0] or target).name


def verdict(trace: "Trace", room: int, *, varies: bool = False) -> str:
    """Say whether a run fits into so many bytes, in a sentence."""
    if trace.oom:
        return f"Does not fit into {format_bytes(room)}: {trace.oom.place}."
    held = trace.peak_reserved or trace.peak_allocated
    fits = "Probably fits" if trace.is_lower_bound else "Fits"
    if varies:
        fits += f" with the batches of these {len(trace.steps)} steps, which differ"
    return (
        f"{fits}: reserves {format_bytes(held)} of {format_bytes(room)}, {format_bytes(max(room - held, 0))} to spare."
    )


def report(title: str, trace: "Trace", source: str, *, room: int | None = None, varies: bool = False) -> Iterator[str]:
    """The lines that say what a run took."""
    rank = f", rank {trace.rank} of {trace.world_size}" if trace.world_size > 1 else ""
    yield f"{title} {trace.source} on {trace.device}{rank}"
    if room is not None:
        yield verdict(trace, room, varies=varies)
    yield ""
    for category, count in trace.by_category.items():
        yield _row(category, count, trace.peak_allocated)
    yield _row("peak", trace.peak_allocated, trace.peak_allocated or 1)
    first, *others = (step.peak_allocated or 0 for step in trace.steps) if trace.steps else (0,)
    if others and not trace.oom and max(others) < first:  # the first step has what is done before it
        yield _row("after the first step", max(others), trace.peak_allocated)
    if trace.peak_reserved is not None:
        yield f"{'reserved':<22}{format_bytes(trace.peak_reserved):>9}"
    if trace.host_peak:
        yield f"{'tensors on the host':<22}{format_bytes(trace.host_peak):>9}"
    yield from _largest(trace)
    yield ""
    yield f"{'steps':<22}{len(trace.steps)}"
    if trace.computed:
        yield f"{'seconds a step':<22}{_seconds(trace)}"
        yield f"{'loss':<22}{_losses(trace)}"
    yield f"{'flops of a step':<22}{trace.flops:,}"
    yield ""
    yield f"{capital(trace.sentence)}."
    if trace.peak_line:
        yield f"There {source}:{trace.peak_line} is at work."
    if trace.time_sentence:
        yield f"{capital(trace.time_sentence)}."
    if trace.oom and trace.peak_reserved is not None:  # an allocator said it
        yield trace.oom.message
    yield from trace.notes
    if trace.peak_reserved is None:
        yield "A CPU has no allocator that counts, so these are bytes of live tensor storages."


def _largest(trace: "Trace") -> Iterator[str]:
    kinds = list(largest_kinds(trace, KINDS))
    if kinds:
        yield from ("", "the largest tensors then", *kinds)


def _row(name: str, count: int, whole: int) -> str:
    return f"{name:<22}{format_bytes(count):>9}{count / whole:>7.0%}"


def _seconds(trace: "Trace") -> str:
    seconds = trace.seconds_per_step
    return "unknown, every step was X-rayed" if seconds is None else f"{seconds:.3g} (median of the plain steps)"


def _losses(trace: "Trace") -> str:
    losses = [loss for loss in trace.losses if loss is not None]
    return f"{losses[0]:.4g} to {losses[-1]:.4g}" if losses else "none"
