"""The module at work: in forward, in backward, and while a checkpoint runs its forward again.

``torch.utils.module_tracker.ModuleTracker`` tells the same, at some 180 µs for every call of a module
(CPU, torch 2.13), many times what a small layer itself takes.
"""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from memlab.tracking.nested import tensors_in


class _Name(NamedTuple):
    """A module by the model that it is in (its class's name) and its path there, ``""`` for the model itself."""

    model: str
    path: str

    def is_in(self, other: "_Name") -> bool:
        return self.model == other.model and (
            not other.path or self.path == other.path or self.path.startswith(f"{other.path}.")
        )


_NONE = _Name("", "")
_COMPILED = "_orig_mod"  # in what torch.compile makes of a module: the module itself


def is_evaluated(module: torch.nn.Module) -> bool:
    """Return whether a model that is trained is called to be evaluated: in eval mode, where no graph is made."""
    if module.training or torch.is_grad_enabled():
        return False
    return any(parameter.requires_grad for parameter in module.parameters())


def _model_name(module: torch.nn.Module) -> str:
    """Return the name of the class that the reader has written, of which fully_shard makes one called FSDPName."""
    kind = type(module)
    written = kind.__bases__[-1].__name__
    return written if kind.__name__ == f"FSDP{written}" else kind.__name__


class ModulesAtWork:
    """Follows module calls between :meth:`start` and :meth:`stop`.

    Args:
        tracked: whether the thread that runs now is to be followed; hooks on modules are process-wide.
        on_root: called with a module that is entered while no other is at work.

    Attributes:
        name: the innermost module at work, such as ``"blocks.3.mlp"``; ``""`` if there is none.
    """

    def __init__(self, tracked: Callable[[], bool], on_root: Callable[[torch.nn.Module], None]):
        self.name = ""
        self._part = ""
        self._tracked = tracked
        self._on_root = on_root
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, _Name] = weakref.WeakKeyDictionary()
        self._hooks = ExitStack()

    def start(self) -> None:
        """Begin to follow."""
        self._stack: list[tuple[_Name, _Name]] = []  # of the modules at work: which, and which it was called in
        self._in_backward = _NONE
        self._show()
        self._hooks.callback(register_module_forward_pre_hook(self._enter).remove)
        self._hooks.callback(register_module_forward_hook(self._leave, with_kwargs=True, always_call=True).remove)

    def stop(self) -> None:
        """Follow no more, and take every hook away."""
        self._hooks.close()

    @property
    def in_forward(self) -> bool:
        """True while the forward of a module is running."""
        return bool(self._stack)

    @property
    def depth(self) -> int:
        """The number of modules that run their forward, one in another."""
        return len(self._stack)

    def work_for(self, part: str) -> None:
        """Compiled code, which calls no modules, works for this part of the module at work; ``""``: for all of it."""
        self._part = part
        self._show()

    def leave_backward(self) -> None:
        """Backward has ended."""
        self._in_backward = _NONE
        self._show()

    def _show(self) -> None:
        innermost = self._stack[-1][0] if self._stack else self._in_backward
        self.name = ".".join(filter(None, (innermost.path, self._part))) or innermost.model

    def _enter(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not self._tracked():
            return
        if not self._stack:
            self._on_root(module)
        outer = self._stack[-1][0] if self._stack else self._in_backward
        self._stack.append((self._name_of(module), outer))
        self._show()

    def _leave(self, module: torch.nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        *kwargs, output = rest  # after an error PyTorch leaves the keyword arguments out
        if not self._tracked() or not self._stack:
            return
        name, outer = self._stack.pop()
        self._show()
        if torch.is_grad_enabled():
            self._on_gradient((*args, *kwargs), partial(self._leave_backward, name, outer))
            self._on_gradient(output, partial(self._enter_backward, name))

    def _name_of(self, module: torch.nn.Module) -> _Name:
        if module not in self._names:  # a root: its parts get their names with it
            model = _model_name(getattr(module, _COMPILED, module))
            for path, part in module.named_modules():
                plain = ".".join(name for name in path.split(".") if name != _COMPILED)
                self._names.setdefault(part, _Name(model, plain))
        return self._names[module]

    def _on_gradient(self, value: object, hook: Callable[[torch.Tensor], None]) -> None:
        for tensor in (value,) if type(value) is torch.Tensor else tensors_in(value):
            if tensor.requires_grad:
                self._hooks.callback(tensor.register_hook(hook).remove)

    # Backward enters a module with the gradient of its output and leaves it with that of its input. Hooks
    # of a module and of its parent may sit on one tensor, so entering never goes up and leaving never down.

    def _enter_backward(self, name: _Name, gradient: torch.Tensor) -> None:
        if not self._in_backward.is_in(name):
            self._in_backward = name
            self._show()

    def _leave_backward(self, name: _Name, outer: _Name, gradient: torch.Tensor) -> None:
        if self._in_backward.is_in(name):
            self._in_backward = outer
            self._show()
