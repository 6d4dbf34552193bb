"""The protocol of a ``train`` function: a generator ``train(device, **settings)`` that yields its loss once a step."""

import dis
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from numbers import Real
from types import GeneratorType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from memlab.errors import BadTrain, BadValue

Train = Callable[..., Iterator[Any]]

# Arguments that memlab's own functions take.
RESERVED = {
    *("steps", "device", "gpu", "world_size", "global_rank", "budget", "xray", "snapshot", "chosen", "progress"),
    *("title", "models"),
}


def own_settings(train: Train) -> dict[str, inspect.Parameter]:
    """The keyword arguments that ``train`` names, by name.

    Raises:
        BadTrain: ``train`` does not take a device first, or has an argument that memlab itself takes.
    """
    if not callable(train):
        raise BadTrain(f"{train!r} is not a function: give a generator train(device, **settings) that yields its loss.")
    parameters = list(inspect.signature(train).parameters.values())
    if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise BadTrain(f"{name_of(train)} takes no device: write it as train(device, **settings).")
    for by_place in (p.name for p in parameters[1:] if p.kind is p.POSITIONAL_ONLY and p.default is p.empty):
        raise BadTrain(f"{name_of(train)} takes {by_place!r} by its place alone: remove the '/' from its arguments.")
    named = {p.name: p for p in parameters[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    for name in named.keys() & RESERVED:
        raise BadTrain(f"{name_of(train)} has a setting {name!r}, which memlab itself takes: give it another name.")
    return named


def _may_give_a_generator(train: Any) -> bool:
    """Return True if ``train`` yields or returns a value, perhaps a generator. A call of any other may never end."""
    while isinstance(train, functools.partial):
        train = train.func
    code = getattr(train, "__code__", None) or getattr(train.__call__, "__code__", None)
    if code is None or code.co_flags & inspect.CO_GENERATOR:
        return True
    return any(_returns_a_value(*pair) for pair in pairwise(dis.get_instructions(code)))


def _returns_a_value(before: dis.Instruction, last: dis.Instruction) -> bool:
    if last.opname == "RETURN_CONST":  # Python 3.12 and 3.13
        return last.argval is not None
    returns_none = before.opname == "LOAD_CONST" and before.argval is None and not last.is_jump_target
    return last.opname == "RETURN_VALUE" and not returns_none


def check_settings(train: Train, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, with the defaults of ``train``'s own keyword arguments filled in.

    Raises:
        BadTrain: as :func:`own_settings`.
        BadValue: a setting that ``train`` lacks, or one without a default that is not given.
    """
    named = own_settings(train)
    legal = ", ".join(named) or "none"
    unknown = [name for name in settings if name not in named]
    device, *others = inspect.signature(train).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in others):
        unknown = [name for name in unknown if name == device.name]
    if unknown:
        raise BadValue(f"{name_of(train)} has no setting {unknown[0]!r}: its settings are {legal}.")
    missing = [name for name, p in named.items() if p.default is p.empty and name not in settings]
    if missing:
        raise BadValue(f"{name_of(train)} needs a value for {missing[0]!r}: pass {missing[0]}=... (settings: {legal}).")
    return {name: p.default for name, p in named.items() if p.default is not p.empty} | dict(settings)


def start(train: Train, device: torch.device, settings: Mapping[str, Any]) -> "GeneratorType[Any, None, None]":
    """Begin ``train``: its generator.

    Raises:
        BadTrain: it is none, or trains before it has given one.
    """
    if not _may_give_a_generator(train):
        raise BadTrain(f"{name_of(train)} has no 'yield': write 'yield loss' at the end of every training step.")
    with _no_step_yet(train):
        generator = train(device, **settings)
    if not isinstance(generator, GeneratorType):
        raise BadTrain(
            f"{name_of(train)} returned {_a(generator)}, not a generator: "
            "yield the loss once in every training step, as in 'yield loss'."
        )
    return generator


@contextmanager
def _no_step_yet(train: Train) -> Iterator[None]:
    """A context in which an optimizer's step is refused in this thread: over endless batches many would follow."""
    thread = threading.get_ident()

    def refuse(*_: Any) -> None:
        if threading.get_ident() == thread:
            raise BadTrain(f"{name_of(train)} trains before it has yielded: write 'yield loss' in every training step.")

    hook = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        hook.remove()


def loss_of(value: Any, train: Train, computes: bool) -> float | None:
    """The loss in what ``train`` yielded; None without one, or where numbers are not computed.

    Raises:
        BadTrain: it yielded something else.
    """
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        if is_one_number(value):
            return float(value.detach()) if computes else None
        found = f"a tensor of shape {tuple(value.shape)}"
    elif isinstance(value, Real) or getattr(value, "ndim", None) == 0:  # NumPy's numbers and arrays of one
        return float(value)
    else:
        found = _a(value)
    raise BadTrain(f"{name_of(train)} yielded {found}: yield one number, the loss of the step (or None).")


def notes_on(losses: Sequence[float | None]) -> list[str]:
    """A sentence if the losses are not finite from some step on, or in some steps: a curve just ends there."""
    lost = [step for step, loss in enumerate(losses) if loss is not None and not math.isfinite(loss)]
    if not lost:
        return []
    first, total = lost[0], len(losses)
    if len(lost) == 1:
        where = f"in step {first + 1} of {total}"
    elif len(lost) == total - first:
        where = f"from step {first + 1} of {total} on"
    else:
        where = f"in {len(lost)} of {total} steps, first in step {first + 1}"
    return [f"The loss is {losses[first]} {where}."]


def is_one_number(tensor: torch.Tensor) -> bool:
    """Return True if a tensor holds one real number, as a loss does."""
    return tensor.numel() == 1 and not tensor.is_complex()


def check_steps(steps: int) -> int:
    """A number of steps.

    Raises:
        BadValue: it is none.
    """
    if not is_whole(steps) or steps < 1:
        raise BadValue(f"steps={steps!r} is not a number of steps: give a whole number from 1 on.")
    return steps


def check_world_size(world_size: Any) -> int:
    """A number of ranks.

    Raises:
        BadValue: it is none.
    """
    if not is_whole(world_size) or world_size < 1:
        raise BadValue(f"world_size={world_size!r} is not a number of ranks: give a whole number from 1 on.")
    return int(world_size)


def is_whole(number: Any) -> bool:
    """Return True if the number is an integer and not a bool."""
    return isinstance(number, int) and not isinstance(number, bool)


def check_xray(xray: str) -> bool:
    """Return True if every step is to be X-rayed.

    Raises:
        BadValue: it is neither ``"auto"`` nor ``"every"``.
    """
    if xray not in ("auto", "every"):
        raise BadValue(f"xray={xray!r} is not known: give 'auto' (some steps) or 'every'.")
    return xray == "every"


def _a(value: object) -> str:
    """The type of a value with its article: a str, an int."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def name_of(train: Train) -> str:
    """Return the name of ``train`` in sentences."""
    return getattr(train, "__name__", type(train).__name__)


def line_of(train: Train, line: int) -> str:
    """A line of the file of ``train`` as its reader counts them: ``"line 3 of train"``."""
    code = getattr(train, "__code__", None)
    return f"line {line - code.co_firstlineno + 1 if code else line} of {name_of(train)}"


def plain(value: Any) -> Any:
    """A setting as a trace keeps it: as it is where JSON has it, else its text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | int) else str(value)
