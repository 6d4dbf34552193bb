"""The panel's sentences: they say the same as its pictures, for the last row of a classroom and for screen readers."""

import re
import traceback
from collections.abc import Collection, Iterable
from dataclasses import replace

from memlab.categories import Category
from memlab.errors import MemlabError
from memlab.lab.ranks import settings_of
from memlab.oom import TRY_EXPANDABLE
from memlab.protocol import Train, line_of
from memlab.text import capital, message
from memlab.trace import Trace
from memlab.tracking.tracker import COMPILED
from memlab.units import GIB, MIB, format_bytes, three_digits
from memlab.vgpu import find_card

MUCH_OF_A_HOST = 2 * GIB  # bytes; free Colab hosts have 12.7 GiB, and PyTorch with its libraries takes one or two
WORTH_TELLING = 512 * MIB  # bytes of the host's memory, where they are not the weights before they move to the card
ABOUT = "about this, until it is predicted exactly"  # said of :func:`memlab.lab.preview.between`


def summary(trace: Trace, earlier: list[Trace], predicted: Trace | None) -> str:
    """Return what the pictures show in a sentence or two, compared with the run before."""
    words = [capital(trace.sentence)]
    if trace.world_size > 1:
        words.append(f"That is rank {trace.rank} of {trace.world_size}; {_sends(trace)}")
    if earlier:
        words.append(_comparison(trace, earlier[-1], "the run before"))
    if trace.peak_reserved is None:
        words.append("On the CPU this counts the bytes of live tensor storages.")
    if predicted is not None and predicted.oom is None:
        told = f"Predicted for {_a(predicted.device)}: {predicted.peak_text}"
        words += _compared(trace, predicted, told) if trace.peak_reserved is None else [told]
    words += trace.notes
    return _sentences(words)


def prediction_summary(
    trace: Trace,
    *,
    before: Trace | None = None,
    warning: str = "",
    name: str = "",
    names: Collection[str] = (),
    budget: int | None = None,
    needed: Trace | None = None,
) -> str:
    """Return what would happen on the card, compared with the prediction before.

    Args:
        trace: the prediction.
        before: the one before, None if there is none to compare it with.
        warning: a further sentence.
        name: what begins the first sentence, as the model's name.
        names: the settings that a control sets.
        budget: bytes.
        needed: where it runs out of memory: what it would take with room for everything, if that is known.
    """
    of_what = f"{name}predicted for {_a(trace.device)}: "
    room = trace.oom.limit if trace.oom else None
    enough = needed.with_room_enough(room) if needed else ""
    if trace.oom and not trace.oom.has_enough_free:
        where = capital(f"{of_what}{trace.oom.place}, {trace.largest}{trace.guessed}")
        return _sentences([where, enough, f"PyTorch would say: {why(trace)}", *trace.notes])
    first = capital(f"{of_what}{trace.sentence}")
    if trace.oom:  # not for want of bytes
        remedy = ": expandable segments may help (notebook 15)" if TRY_EXPANDABLE in trace.oom.message else ""
        return _sentences([first, f"Enough bytes are free, but not in one piece{remedy}", enough, *trace.notes])
    words = [first, warning, *trace.notes]
    if budget is not None and trace.peak_allocated > budget:
        words.insert(1, f"That is {format_bytes(trace.peak_allocated - budget)} over the budget")
    if trace.world_size > 1:
        words.insert(1, f"That is rank {trace.rank} of {trace.world_size}; {_sends(trace)}")
    if trace.peak_reserved is not None:
        words.append(_reserves(trace, trace.peak_reserved))
    if _fills_the_host(trace):
        words.append(f"Tensors take up to {format_bytes(trace.host_peak or 0)} of the host's memory")
    if before is not None and before.device == trace.device and (changed := _changed(trace, before, names)):
        words.append(_comparison(trace, before, f"the {format_bytes(before.peak_allocated)} of {changed}"))
    return _sentences(words)


def why(trace: Trace) -> str:
    """The surprise of a step: where memory ran out CUDA's words, with what they leave out; else the notes."""
    if trace.oom is None:
        return _sentences([*trace.notes])
    # They have what was asked for. Their further sentences are ten lines on a projector; the trace has them.
    said = trace.oom.message.partition(" Including ")[0]
    if trace.source == "measured" or not said:
        return said
    card = find_card(trace.device)
    left = f"CUDA's context takes {format_bytes(card.context)}, which leaves PyTorch {format_bytes(card.room)}"
    return _sentences([said, left])


def _reserves(trace: Trace, reserved: int) -> str:
    told = f"PyTorch would reserve {trace.text_of(reserved)} of the card"
    if not trace.holds_much_idle:
        return told
    more = reserved - trace.peak_allocated
    return f"{told}, {format_bytes(more)} more than tensors take at once: free blocks of other sizes or streams"


def _fills_the_host(trace: Trace) -> bool:
    """Return whether the host holds much, or more than the weights before they move to the card."""
    held, weights = trace.host_peak or 0, trace.by_category.get(Category.PARAMETER, 0)
    return held >= MUCH_OF_A_HOST or (held >= WORTH_TELLING and held > 1.5 * weights)


def _changed(trace: Trace, before: Trace, names: Iterable[str]) -> str:
    """The settings that have changed, as they were: ``batch 8, precision fp32``."""
    now = settings_of(trace)
    return ", ".join(
        setting_text(name, value)
        for name, value in settings_of(before).items()
        if name in names and now.get(name) != value
    )


def heading(trace: Trace, names: Iterable[str], model: str = "") -> str:
    """The settings that a panel controls, and the model: ``batch 20 · checkpoint every 0 · GPT-2 small``."""
    return " · ".join([*_said(trace, names), *filter(None, [model])]) or "Memory in one step"


def origin(trace: Trace, *, recorded: bool = False) -> str:
    """Return the origin of a run in words: ``predicted for a T4``."""
    if trace.source == "about":
        return f"{ABOUT} for {_a(trace.device)}"
    if trace.source == "predicted":
        return f"predicted for {_a(trace.device)}"
    uncompiled = ", not compiled," if COMPILED in trace.notes else ""
    return f"{'recorded' if recorded else 'measured'}{uncompiled} on {trace.device}"


def without_workspace(trace: Trace) -> Trace:
    """A prediction's tensors alone, as a CPU counts them, without what libraries take and blocks are rounded up to."""
    events = tuple(event for event in trace.events if event.category is not Category.WORKSPACE)
    start: dict[Category, int] = {
        category: count for category, count in trace.start.items() if category is not Category.WORKSPACE
    }
    return replace(trace, start=start, events=events, reserved=())


def _compared(trace: Trace, predicted: Trace, told: str) -> list[str]:
    """Say what is told of a prediction, with the part of it that a CPU counts, and why the CPU took another peak."""
    tensors = without_workspace(predicted)
    if Category.WORKSPACE in predicted.by_category:
        told = f"{told}, without workspace {format_bytes(tensors.peak_allocated)}"
    is_alike = trace.oom or _alike(trace.peak_allocated, tensors.peak_allocated)
    return [told] if is_alike else [told, _why_apart(trace, tensors)]


def _why_apart(trace: Trace, tensors: Trace) -> str:
    """The reason for which a card's tensors take other bytes than a run on the CPU took, as far as traces show one."""
    reasons = []
    if tensors.peak_op.startswith("aten._foreach_"):
        reasons.append("a card's optimizer updates all weights at once (foreach), the CPU's one after the other")
    if halves := _halves(tensors) - _halves(trace):
        reasons.append(f"on the card it computes in {' and '.join(sorted(halves))}")
    if not reasons and tensors.xray_step >= len(trace.steps):
        reasons.append(f"the prediction is of step {tensors.xray_step + 1}, which the run has not made")
    if not reasons:
        there = tensors.by_category
        apart = {
            category: abs(trace.by_category.get(category, 0) - there.get(category, 0))
            for category in trace.by_category | there
        }
        reasons.append(f"most of the difference is {max(apart, key=apart.__getitem__)}")
    return capital("; ".join(reasons))


def _alike(count: int, other: int) -> bool:
    return abs(count - other) <= max(count, other) / 50


def _halves(trace: Trace) -> set[str]:
    return {storage.dtype for storage in trace.storages} & {"float16", "bfloat16"}


def _said(trace: Trace, names: Iterable[str]) -> list[str]:
    settings = settings_of(trace)
    return [setting_text(name, settings[name]) for name in names if name in settings]


def setting_text(name: str, value: object) -> str:
    """A setting as people say it: ``batch 8``, ``compiled on``."""
    return f"{name.replace('_', ' ').replace('batch size', 'batch')} {value_text(value)}"


def value_text(value: object) -> object:
    """A setting's value as people say it: a switch is on or off."""
    return ("off", "on")[value] if isinstance(value, bool) else value


def run_name(trace: Trace) -> str:
    """Return the device and the settings of a run, as text."""
    settings = (f"{name.replace('_', ' ')} {value}" for name, value in trace.settings.items())
    return ", ".join([trace.device, *settings])


def recorded_summary(trace: Trace) -> str:
    """Return sentences on a recorded run: its device and settings, and the memory and time that it took."""
    words = [f"Recorded with torch {trace.torch_version} on {run_name(trace)}"]
    words.append(capital(trace.sentence))
    if trace.peak_reserved is not None:
        words.append(f"PyTorch reserved {format_bytes(trace.peak_reserved)}")
    if trace.seconds_per_step is not None:
        words.append(f"A step took {1000 * trace.seconds_per_step:.3g} ms there")
    return _sentences(words)


def _sends(trace: Trace) -> str:
    told = f"it sends {format_bytes(trace.sent)} to others in a step"
    if not trace.sent_to_other_machines:
        return told
    return f"{told}, {format_bytes(trace.sent_to_other_machines)} of it to other machines"


def _sentences(parts: list[str]) -> str:
    return " ".join(f"{part.rstrip('.')}." for part in parts if part)


def _a(name: str) -> str:
    """The name with its article: an A100, a T4, an 80 GiB sm_90."""
    return f"{'an' if re.match('[AHLR8]|1[18]', name) else 'a'} {name}"


def _comparison(trace: Trace, before: Trace, what: str) -> str:
    if trace.oom or before.oom or not before.peak_allocated:
        return ""
    than = _times(trace.peak_allocated / before.peak_allocated)
    work = trace.flops / before.flops if before.flops else 1
    cost = f"; a step takes {_factor(work)} the arithmetic" if round(work, 2) != 1 else ""
    return f"That is {than} {what}{cost}"


def _times(ratio: float) -> str:
    """A ratio as people say it: "12.7 times", "44% above", "the same as", "0.23 times"."""
    if 0.495 <= ratio < 1.995:
        percent = round(100 * abs(ratio - 1))
        return f"{percent}% {'below' if ratio < 1 else 'above'}" if percent else "the same as"
    return _factor(ratio)


def _factor(ratio: float) -> str:
    """A ratio with three digits: "12.7 times"."""
    if ratio < 0.005:
        return "less than a hundredth of"
    return f"{three_digits(ratio)} times"


def failure_sentence(error: BaseException, train: Train) -> str:
    """The error and the line of ``train`` that it passed through; of what memlab refuses, its sentence says it all."""
    if isinstance(error, MemlabError):
        return message(error)
    code = getattr(train, "__code__", None)
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code is code]
    where = f" ({line_of(train, lines[-1])})" if code and lines else ""
    notes = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
    mending = "Fix it, then run its cell and the panel's again."
    return f"{type(error).__name__}: {message(error).rstrip('.')}{where}. {mending}{notes}"


def ending(trace: Trace | None, steps: int, stopped: bool) -> str:
    """Return a sentence on how a run of at most ``steps`` steps ended; ``trace`` is None if it made no step."""
    if trace is None:
        return "Stopped before the first step. Ready."
    if trace.oom:
        how = "Out of memory"
    elif len(trace.steps) == steps:
        how = "Done"
    else:
        how = "Stopped" if stopped else "The training loop ended"
    return f"{how} after {len(trace.steps)} of {steps} steps. Ready."
