"""Which module is at work, in forward, in backward and while a checkpoint runs its forward again.

``torch.utils.module_tracker.ModuleTracker`` tells the same, at some 180 µs for every call of a module
(CPU, torch 2.13), many times what a small layer itself takes.
"""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from memlab.tracking.nested import tensors_in


class ModulesAtWork:
    """Follows module calls between :meth:`start` and :meth:`stop`.

    Args:
        tracked: whether the thread that runs now is to be followed; hooks on modules are process-wide.
        on_root: called with a module that is entered while no other is at work.
    """

    def __init__(self, tracked: Callable[[], bool], on_root: Callable[[torch.nn.Module], None]):
        self._tracked = tracked
        self._on_root = on_root
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._hooks = ExitStack()

    def start(self) -> None:
        """Begin to follow."""
        self._stack: list[tuple[str, str]] = []  # of the modules at work: the name, and of what it was called in
        self._in_backward = ""
        self._hooks.callback(register_module_forward_pre_hook(self._enter).remove)
        self._hooks.callback(register_module_forward_hook(self._leave, with_kwargs=True, always_call=True).remove)

    def stop(self) -> None:
        """Follow no more, and take every hook away."""
        self._hooks.close()

    @property
    def name(self) -> str:
        """The innermost module at work, such as ``"blocks.3.mlp"``; ``""`` if there is none."""
        return self._stack[-1][0] if self._stack else self._in_backward

    @property
    def in_forward(self) -> bool:
        """Whether a module's forward is running."""
        return bool(self._stack)

    def leave_backward(self) -> None:
        """Backward has ended."""
        self._in_backward = ""

    def _enter(self, module: torch.nn.Module, args) -> None:
        if not self._tracked():
            return
        if not self._stack:
            self._on_root(module)
        self._stack.append((self._name_of(module), self.name))

    def _leave(self, module: torch.nn.Module, args: tuple, *rest) -> None:
        *kwargs, output = rest  # after an error PyTorch leaves the keyword arguments out
        if not self._tracked() or not self._stack:
            return
        name, outer = self._stack.pop()
        if torch.is_grad_enabled():
            self._on_gradient((args, *kwargs), partial(self._leave_backward, name, outer))
            self._on_gradient(output, partial(self._enter_backward, name))

    def _name_of(self, module: torch.nn.Module) -> str:
        if module not in self._names:  # a root: its parts get their names with it
            for name, part in module.named_modules():
                self._names.setdefault(part, name.replace("_orig_mod.", "") or type(module).__name__)
        return self._names[module]

    def _on_gradient(self, value: object, hook: Callable) -> None:
        for tensor in tensors_in(value):
            if tensor.requires_grad:
                self._hooks.callback(tensor.register_hook(hook).remove)

    # Backward enters a module with the gradient of its output and leaves it with that of its input. Hooks
    # of a module and of its parent may sit on one tensor, so entering never goes up and leaving never down.

    def _enter_backward(self, name: str, gradient: torch.Tensor) -> None:
        if not _inside(self._in_backward, name):
            self._in_backward = name

    def _leave_backward(self, name: str, outer: str, gradient: torch.Tensor) -> None:
        if _inside(self._in_backward, name):
            self._in_backward = outer


def _inside(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")
