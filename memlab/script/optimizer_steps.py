"""The end of a script's step: the moment when every optimizer that is to step has stepped."""

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from memlab.patching import Change, Patches
from memlab.protocol import is_one_number

# Steps of one optimizer after which another one that has made none is not waited for, and backwards of a script without
# an optimizer after which each of them ends a step.
PATIENCE = 10


class Steps:
    """A context in which the steps of the script that runs are followed.

    A step ends when all parameters that an optimizer has were stepped: by one optimizer or by several (a GAN's), after
    one backward or after several. Where optimizers step within a backward, it ends with that. A script that updates its
    parameters itself, without an optimizer, is given some backwards for its first step, and then one for each.

    Args:
        on_loss: called with each loss after ``backward`` was called on it, as it was before a ``GradScaler`` scaled it.
        on_step: called at the end of each step.

    Attributes:
        backwards: how many there were in this step.
        backwards_before: and in the step before it; 0 in the first one.
        counts_backwards: whether each of them ends a step.
    """

    def __init__(self, on_loss: Callable[[torch.Tensor], None], on_step: Callable[[], None]):
        self._on_loss = on_loss
        self._on_step = on_step
        self.backwards = self.backwards_before = 0
        self.counts_backwards = False
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stepped: Counter[int] = Counter()  # steps of each optimizer in this step, by id
        self._given_up: set[int] = set()
        self._steps_of: dict[Any, Callable[..., Any]] = {}  # of each class of optimizers, as PyTorch has it
        self._depth = 0  # of backwards, and of steps of optimizers
        self._scaled: tuple[Any, Any] = (lambda: None, lambda: None)  # the last loss, and what it was before

    @contextmanager
    def followed(self) -> Iterator[None]:
        """``with`` this, the steps of optimizers are seen."""
        with Patches(self._changes):
            try:
                yield
            finally:
                for class_, step in self._steps_of.items():
                    class_.step = step

    def _changes(self) -> Iterator[Change]:
        yield Optimizer, "__init__", self._known(Optimizer.__init__)
        yield torch.autograd, "backward", self._backward(torch.autograd.backward)  # Tensor.backward calls it too
        yield torch.amp.GradScaler, "scale", self._scale(torch.amp.GradScaler.scale)

    def _known(self, init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def known(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._optimizers.add(optimizer)
            class_: Any = next(base for base in type(optimizer).__mro__ if "step" in vars(base))
            if class_ not in self._steps_of:
                # Not PyTorch's own hooks: the tracker has some there, which it takes away when a step ends.
                self._steps_of[class_] = class_.step
                class_.step = self._step(class_.step)

        return known

    def _step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def followed(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            with self._inside():
                result = step(optimizer, *args, **kwargs)
            self._stepped[id(optimizer)] += 1
            self._given_up.discard(id(optimizer))
            self._end_if_over()
            return result

        return followed

    def _backward(self, backward: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(backward)
        def followed(tensors: Any, *args: Any, **kwargs: Any) -> None:
            with self._inside():
                backward(tensors, *args, **kwargs)
            self._see_loss(tensors)
            self.backwards += 1
            self.counts_backwards = not self._optimizers and (self.counts_backwards or self.backwards >= PATIENCE)
            self._end_if_over()

        return followed

    @contextmanager
    def _inside(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _scale(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(scale)
        def scaled(scaler: torch.amp.GradScaler, outputs: Any) -> Any:
            result = scale(scaler, outputs)
            if isinstance(result, torch.Tensor) and result is not outputs:
                self._scaled = weakref.ref(result), weakref.ref(outputs)
            return result

        return scaled

    def _see_loss(self, tensors: Any) -> None:
        if isinstance(tensors, torch.Tensor) and is_one_number(tensors):
            loss = self._scaled[1]() if self._scaled[0]() is tensors else tensors
            if loss is not None:
                self._on_loss(loss)

    def _end_if_over(self) -> None:
        if not self._depth and (self.counts_backwards or (self._stepped and not self._is_waiting())):
            self._stepped.clear()
            self.backwards, self.backwards_before = 0, self.backwards
            self._on_step()

    def _is_waiting(self) -> bool:
        """Return True if an optimizer has yet to step, and no optimizer that has stepped updates its parameters."""
        late = [one for one in self._optimizers if id(one) not in self._given_up | self._stepped.keys()]
        if not late:
            return False
        if max(self._stepped.values()) >= PATIENCE:
            self._given_up |= set(map(id, late))
            return False
        done = {id(p) for one in self._optimizers if id(one) in self._stepped for p in _parameters(one)}
        return not done.issuperset(id(p) for one in late for p in _parameters(one))


def _parameters(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
