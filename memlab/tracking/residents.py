"""Storages whose category is known for certain: parameters, buffers, gradients, the state of optimizers."""

import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch

from memlab.trace import Category


class Residents:
    """Marks what stays between steps, and every gradient as soon as it has been accumulated.

    Args:
        mark: takes tensors and the category that they have for certain.
    """

    def __init__(self, mark: Callable[[Iterable[torch.Tensor], Category], None]):
        self._mark = mark
        self._parameters: dict[int, weakref.ref[torch.nn.Parameter]] = {}
        self._hooked: set[int] = set()  # parameters that have a hook in this step
        self._hooks = ExitStack()

    def stop(self) -> None:
        """Take every hook away."""
        self._hooked.clear()
        self._hooks.close()

    def module(self, module: torch.nn.Module) -> None:
        """A module is entered."""
        self.parameters(module.parameters())
        self._mark(module.buffers(), Category.BUFFER)

    def parameters(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """These are trained, or frozen."""
        for parameter in parameters:
            self._mark([parameter], Category.PARAMETER)
            if id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                self._parameters[id(parameter)] = weakref.ref(parameter)
                if parameter.requires_grad:
                    self._hooks.callback(parameter.register_post_accumulate_grad_hook(self._accumulated).remove)

    def gradients(self) -> None:
        """Gradients that the parameters known so far have now."""
        parameters = (ref() for ref in self._parameters.values())
        self._mark((p.grad for p in parameters if p is not None and p.grad is not None), Category.GRADIENT)

    def state(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made a step."""
        for state in list(optimizer.state.values()):
            self._mark(tensors_in(state), Category.OPTIMIZER_STATE)

    def _accumulated(self, parameter: torch.nn.Parameter) -> None:
        if parameter.grad is not None:
            self._mark([parameter.grad], Category.GRADIENT)


def tensors_in(value: object) -> Iterable[torch.Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
