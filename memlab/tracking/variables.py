"""The tensors that a training loop holds, by the names of its variables."""

import inspect
import sys
from collections import UserDict
from collections.abc import Iterator
from types import FrameType

from torch import Tensor

from memlab.tracebacks import is_readers

MOST_VALUES = 100  # of a batch; a vocabulary has thousands
_SEES_ITS_OWN = {"locals", "vars", "eval", "exec", "dir"}


def frames(loop: FrameType) -> list[FrameType]:
    """Return the frame of a loop and, while it runs, those of the reader's functions and generators in which it is:
    a training step in a function of its own, or steps that are left to another loop with ``yield from``.
    """
    found: list[FrameType] = []
    at: FrameType | None = sys._getframe(1)
    while at is not None and at is not loop:
        found = [at, *found] if is_readers(at.f_code.co_filename) else []
        at = at.f_back
    return [loop, *found] if at is loop else [loop]


def variables(frame: FrameType) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor that a frame holds with its name: a variable, or one value of a dictionary, as ``batch.ids``.

    Up to Python 3.12 a function's frame keeps the dictionary of its variables once somebody has asked for it, and so
    keeps their tensors alive. It is emptied here. Where the function may have taken it for itself, nothing is yielded.
    """
    code = frame.f_code
    if code.co_flags & inspect.CO_OPTIMIZED and _SEES_ITS_OWN & set(code.co_names):
        return
    held = frame.f_locals
    found = [pair for name, value in held.items() for pair in _tensors(name, value)]
    if code.co_flags & inspect.CO_OPTIMIZED and isinstance(held, dict):
        held.clear()
    yield from found


def _tensors(name: str, value: object) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict | UserDict) and len(value) <= MOST_VALUES:  # other mappings may read files
        yield from ((f"{name}.{key}", inner) for key, inner in value.items() if isinstance(inner, Tensor))
