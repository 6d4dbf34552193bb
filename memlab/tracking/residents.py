"""Storages whose category is known for certain: parameters, buffers, gradients, the state of optimizers."""

import gc
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import chain

import torch
from torch.nn.parameter import is_lazy

from memlab.categories import Category
from memlab.tracking.nested import tensors_in


class Residents:
    """Marks what stays between steps, and every gradient as soon as it has been accumulated.

    Args:
        mark: takes tensors, each with its name, and the category that they have for certain; with ``follows=False`` it
            leaves out those that nothing showed before.
    """

    def __init__(self, mark: Callable[..., None]):
        self._mark = mark
        self._names: dict[int, str] = {}  # of parameters, by their id
        # By id, and weakly: another parameter may get the id of one that is gone.
        self._parameters: dict[int, weakref.ref[torch.nn.Parameter]] = {}
        self._hooked: dict[int, weakref.ref[torch.nn.Parameter]] = {}  # those that have a hook in this step
        self._hooks = ExitStack()

    def stop(self) -> None:
        """Take every hook away."""
        self._hooked.clear()
        self._hooks.close()

    def module(self, module: torch.nn.Module) -> None:
        """A module is entered."""
        named = list(module.named_parameters())
        self._names.update((id(parameter), name) for name, parameter in named)
        self.parameters(parameter for _, parameter in named)
        self._mark(_no_lazy(module.named_buffers()), Category.BUFFER)

    def all_modules(self) -> None:
        """Mark what every module holds that is alive: of a step that failed, some have not been entered yet.

        Nothing is followed that was not before: a model of another run may be alive.
        """
        modules = [module for module in _modules() if "_modules" in vars(module)]  # not TorchScript, nor half made
        inner = {id(child) for module in modules for child in module.children()}
        for module in modules:
            if id(module) not in inner:
                self._mark(_no_lazy(module.named_buffers()), Category.BUFFER, follows=False)
                self._mark(_no_lazy(module.named_parameters()), Category.PARAMETER, follows=False)

    def parameters(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """These are trained, or frozen."""
        for parameter in parameters:
            # One that is lazy gets its bytes when its module first runs, and is met then.
            if not (_holds(self._hooked, parameter) or is_lazy(parameter)):
                self._mark([(self._name(parameter), parameter)], Category.PARAMETER)
                self.parameter(parameter)

    def parameter(self, parameter: torch.nn.Parameter) -> None:
        """Follow the gradient of one."""
        if _holds(self._hooked, parameter) or not (parameter.requires_grad and parameter.is_leaf):
            return
        self._parameters[id(parameter)] = self._hooked[id(parameter)] = weakref.ref(parameter)
        self._hooks.callback(parameter.register_post_accumulate_grad_hook(self.accumulated).remove)

    def gradients(self) -> None:
        """Gradients that the parameters known so far have now."""
        for key, ref in list(self._parameters.items()):
            parameter = ref()
            if parameter is None:
                del self._parameters[key]
            else:
                self.accumulated(parameter)

    def state(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made a step."""
        for parameter, state in list(optimizer.state.items()):
            parts = state.items() if isinstance(state, dict) else [("state", state)]
            for part, value in parts:
                name = f"{self._name(parameter)} {part}".strip()
                self._mark(((name, tensor) for tensor in tensors_in(value)), Category.OPTIMIZER_STATE)

    def _name(self, parameter: object) -> str:
        return self._names.get(id(parameter), "")

    def accumulated(self, parameter: torch.nn.Parameter) -> None:
        if parameter.grad is not None:
            self._mark([(f"{self._name(parameter)}.grad", parameter.grad)], Category.GRADIENT)


def _modules() -> list[torch.nn.Module]:
    """Return every module that is alive.

    Nothing else may be referenced while another thread runs: where that thread is building a tuple from a generator,
    one more reference to the unfinished tuple makes CPython raise SystemError there
    (https://github.com/python/cpython/issues/101855). Hence types alone are taken from all objects, in one call that
    runs no Python code.
    """
    types = set(map(type, chain.from_iterable(map(gc.get_objects, (None,)))))
    modules = [kind for kind in types if issubclass(kind, torch.nn.Module)]
    return [thing for thing in gc.get_referrers(*modules) if issubclass(type(thing), torch.nn.Module)]


def _no_lazy(named: Iterable[tuple[str, torch.Tensor]]) -> Iterable[tuple[str, torch.Tensor]]:
    return ((name, tensor) for name, tensor in named if not is_lazy(tensor))


def _holds(known: dict[int, weakref.ref[torch.nn.Parameter]], parameter: torch.nn.Parameter) -> bool:
    ref = known.get(id(parameter))
    return ref is not None and ref() is parameter
