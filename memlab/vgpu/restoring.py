"""The restoration of what existed before a prediction, when it is over.

A loop may use a module or an optimizer that was made outside of it. In a prediction their tensors become the card's,
and state is added; afterwards all of it must be gone. So before a prediction begins, everything of PyTorch's that the
loop can reach (through its closure, the globals that it names, its arguments, and what these hold) is written down.
"""

import functools
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from memlab.vgpu.internals import FakeTensor
from memlab.vgpu.refusals import is_readers_own
from memlab.vgpu.subclasses import is_own_parameter

MOST_OBJECTS = 100_000  # looked at; a loop reaches some hundreds
_WHOLE = (nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
_CONTAINERS = (dict, list, set, tuple, deque)


class Belongings:
    """The state of what a loop can reach, to put back later.

    Args:
        roots: the loop and its arguments.
    """

    def __init__(self, *roots: Any):
        self._whole: list[tuple[Any, Any]] = []  # containers of PyTorch's own objects, and copies of them
        self._classes: list[tuple[Any, type]] = []  # a lazy module changes its own
        self._others: list[tuple[Any, Any]] = []  # containers of anybody else's
        self._tensors: list[_Leaf] = []
        self._visit(roots)

    def restore(self) -> None:
        """Put everything back: PyTorch's objects whole, others where they now hold a tensor of the card."""
        for value, class_ in self._classes:
            value.__class__ = class_
        for container, copy in self._whole:
            _refill(container, copy)
        for container, copy in self._others:
            if _holds_fake(container):
                _refill(container, copy)
        for leaf in self._tensors:
            leaf.restore()

    def _visit(self, roots: tuple[Any, ...]) -> None:
        seen: dict[int, Any] = {}
        waiting: list[tuple[Any, bool]] = [(root, False) for root in roots]
        while waiting and len(seen) < MOST_OBJECTS:
            value, whole = waiting.pop()
            if id(value) in seen or isinstance(value, _PLAIN):
                continue
            seen[id(value)] = value
            if isinstance(value, torch.Tensor):
                is_known = type(value) in _PLAIN_TENSORS or is_own_parameter(value)
                if is_known and value.is_leaf and value.layout is torch.strided:
                    self._tensors.append(_Leaf(value))
                    self._write_down(value.__dict__, True)
                    waiting.extend((item, False) for item in value.__dict__.values())
            elif isinstance(value, _CONTAINERS):
                self._write_down(value, whole)
                waiting.extend((item, whole) for item in _held(value))
            elif isinstance(value, types.FunctionType | types.MethodType | types.BuiltinMethodType | type):
                waiting.extend((item, False) for item in _named_by(value))
            elif isinstance(value, types.ModuleType):
                if is_readers_own(getattr(value, "__file__", None) or __file__):
                    waiting.extend((item, False) for item in vars(value).values())
            elif isinstance(value, functools.partial):
                waiting.extend([(value.func, False), (value.args, False), (value.keywords, False)])
            elif isinstance(getattr(value, "__dict__", None), dict):  # of an alias, list[int], it is the class's
                whole = isinstance(value, _WHOLE)
                if whole:
                    self._classes.append((value, type(value)))
                self._write_down(value.__dict__, whole)
                waiting.extend((item, whole) for item in value.__dict__.values())

    def _write_down(self, container: Any, whole: bool) -> None:
        if not isinstance(container, tuple):
            (self._whole if whole else self._others).append((container, _content(container)))


class _Leaf:
    """A real tensor: where its numbers are, its gradient, its hooks."""

    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor
        self._data = tensor.detach()
        self._requires_grad = tensor.requires_grad
        self._gradient = tensor.grad
        self._hooks = [(name, getattr(tensor, name)) for name in _HOOKS]
        self._hooks_in_them = [None if hooks is None else hooks.copy() for _, hooks in self._hooks]

    def restore(self) -> None:
        """Make it what it was. What its numbers are is the host's affair, see ``host.py``."""
        tensor = self._tensor
        if not tensor.is_leaf:
            return
        if tensor.device != self._data.device or tensor.data_ptr() != self._data.data_ptr():  # tensor.data = another
            tensor.data = self._data
        tensor.requires_grad_(self._requires_grad)
        tensor.grad = self._gradient
        for (name, hooks), before in zip(self._hooks, self._hooks_in_them, strict=True):
            if hooks is not None:  # the same dict, which the reader's handles know
                hooks.clear()
                hooks.update(before)
            if getattr(tensor, name) is not hooks:
                setattr(tensor, name, hooks)


_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_PLAIN_TENSORS = (torch.Tensor, nn.Parameter)
_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def _holds_fake(value: Any, depth: int = 4) -> bool:
    """Return True for a fake tensor, or a container that holds one, ``depth`` levels deep at most."""
    if isinstance(value, _CONTAINERS) and depth:
        return any(_holds_fake(item, depth - 1) for item in _held(value))
    return isinstance(value, FakeTensor)


def _held(container: Any) -> Iterable[Any]:
    content = _content(container)
    return content.values() if isinstance(content, dict) else content


def _content(container: Any) -> Any:
    """A plain copy of a container, whatever a class of its own may make of ``copy`` and ``values``."""
    if isinstance(container, OrderedDict):
        return OrderedDict(OrderedDict.items(container))
    if isinstance(container, dict):
        return dict.copy(container)
    kind = next(kind for kind in (list, set, tuple, deque) if isinstance(container, kind))
    return list(kind.__iter__(container))


def _refill(container: Any, copy: Any) -> None:
    """Give a container its old content; it stays the same object."""
    if isinstance(container, list):
        container[:] = copy
        return
    container.clear()
    (container.extend if isinstance(container, deque) else container.update)(copy)


def _named_by(value: Any) -> Iterator[Any]:
    """Yield the values that a function or a class of the reader's own can name."""
    if isinstance(value, type):
        if is_readers_own(getattr(sys.modules.get(value.__module__), "__file__", None) or __file__):
            yield from vars(value).values()
        return
    if isinstance(value, types.BuiltinMethodType):
        yield value.__self__
        return
    if isinstance(value, types.MethodType):
        yield value.__self__
        value = value.__func__
    if not isinstance(value, types.FunctionType) or not is_readers_own(value.__code__.co_filename):
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
