"""What existed before a prediction is as it was, when the prediction is over.

A loop may use a module or an optimizer that was made outside of it. In a prediction their tensors become the card's,
and state is added; afterwards all of it must be gone. So before a prediction begins, everything of PyTorch's that the
loop can reach (through its closure, the globals that it names, its arguments, and what these hold) is written down.
"""

import functools
import sys
import types
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from memlab.vgpu.internals import FakeTensor

MOST_OBJECTS = 100_000  # looked at; a loop reaches some hundreds
_WHOLE = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
_CONTAINERS = (dict, list, set, tuple, deque)
_INSTALLED = {"site-packages", "dist-packages"}


class Belongings:
    """What a loop can reach, as it is now.

    Args:
        roots: the loop and its arguments.
    """

    def __init__(self, *roots: Any):
        self._whole: list[tuple[Any, Any]] = []  # containers of PyTorch's own objects, and copies of them
        self._others: list[tuple[Any, Any]] = []  # containers of anybody else's
        self._gradients: list[tuple[torch.Tensor, torch.Tensor | None, bool]] = []
        self._visit(roots)

    def restore(self) -> None:
        """Put everything back: PyTorch's objects whole, others where they now hold a tensor of the card."""
        for container, copy in self._whole:
            _refill(container, copy)
        for container, copy in self._others:
            if any(isinstance(value, FakeTensor) for value in _held(container)):
                _refill(container, copy)
        for tensor, gradient, requires_grad in self._gradients:
            if tensor.is_leaf:
                tensor.requires_grad_(requires_grad)
                tensor.grad = gradient

    def _visit(self, roots: tuple) -> None:
        seen: dict[int, Any] = {}
        waiting: list[tuple[Any, bool]] = [(root, False) for root in roots]
        while waiting and len(seen) < MOST_OBJECTS:
            value, whole = waiting.pop()
            if id(value) in seen or isinstance(value, _PLAIN):
                continue
            seen[id(value)] = value
            if isinstance(value, torch.Tensor):
                if not isinstance(value, FakeTensor):
                    self._gradients.append((value, value.grad if value.is_leaf else None, value.requires_grad))
            elif isinstance(value, _CONTAINERS):
                self._write_down(value, whole)
                waiting.extend((item, whole) for item in _held(value))
            elif isinstance(value, types.FunctionType | types.MethodType | types.BuiltinMethodType | type):
                waiting.extend((item, False) for item in _named_by(value))
            elif isinstance(value, types.ModuleType):
                if _is_own(getattr(value, "__file__", None)):
                    waiting.extend((item, False) for item in vars(value).values())
            elif isinstance(value, functools.partial):
                waiting.extend([(value.func, False), (value.args, False), (value.keywords, False)])
            elif hasattr(value, "__dict__"):
                whole = isinstance(value, _WHOLE)
                self._write_down(value.__dict__, whole)
                waiting.extend((item, whole) for item in value.__dict__.values())

    def _write_down(self, container: Any, whole: bool) -> None:
        if not isinstance(container, tuple):
            (self._whole if whole else self._others).append((container, container.copy()))


_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def _held(container: Any) -> list:
    return list(container.values() if isinstance(container, dict) else container)


def _refill(container: Any, copy: Any) -> None:
    """Give a container its old content; it stays the same object."""
    if isinstance(container, list):
        container[:] = copy
        return
    container.clear()
    (container.extend if isinstance(container, deque) else container.update)(copy)


def _named_by(value: Any) -> Iterator[Any]:
    """What a function or a class of the reader's own can name."""
    if isinstance(value, type):
        if _is_own(getattr(sys.modules.get(value.__module__), "__file__", None)):
            yield from vars(value).values()
        return
    if isinstance(value, types.BuiltinMethodType):
        yield value.__self__
        return
    if isinstance(value, types.MethodType):
        yield value.__self__
        value = value.__func__
    if not isinstance(value, types.FunctionType) or not _is_own(value.__code__.co_filename):
        return
    for cell in value.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from value.__defaults__ or ()
    yield from (value.__kwdefaults__ or {}).values()
    yield from (value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__)


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _is_own(file: str | None) -> bool:
    """Whether a file is the reader's own: not Python's, nor installed, nor memlab's. Cells of a notebook are."""
    if file is None:
        return False
    path = Path(file)
    return not _INSTALLED & set(path.parts) and not any(path.is_relative_to(folder) for folder in _LIBRARIES)


_LIBRARIES = (Path(__file__).parents[1], Path(types.__file__).parent)
