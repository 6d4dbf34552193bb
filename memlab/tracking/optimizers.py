"""An optimizer's step at work, followed by hooks before and after it."""

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class OptimizersAtWork:
    """Follows the steps of optimizers between :meth:`start` and :meth:`stop`.

    Args:
        tracked: whether the thread that runs now is to be followed; hooks on optimizers are process-wide.
        on_step: called with an optimizer that begins a step.
        on_stepped: called with one that has made its step, or was at it when following ended.
    """

    def __init__(
        self,
        tracked: Callable[[], bool],
        on_step: Callable[[Optimizer], None],
        on_stepped: Callable[[Optimizer], None],
    ):
        self._tracked = tracked
        self._on_step = on_step
        self._on_stepped = on_stepped
        self._hooks = ExitStack()

    def start(self) -> None:
        """Begin to follow."""
        self.at_work: list[weakref.ref[_Step]] = []
        self._hooks.callback(register_optimizer_step_pre_hook(self._enter).remove)
        self._hooks.callback(register_optimizer_step_post_hook(self._leave).remove)

    def stop(self) -> None:
        """Follow no more, and take every hook away. What a step that raised has made is state as well."""
        self._hooks.close()
        for ref in list(self.at_work):
            if (step := ref()) is not None:
                self._on_stepped(step.optimizer)

    def _enter(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "tuple[tuple[Any, ...], _Step] | None":
        if not self._tracked():
            return None
        self._on_step(optimizer)
        step = _Step(kwargs)
        step.optimizer = optimizer
        self.at_work.append(weakref.ref(step, self.at_work.remove))
        return args, step

    def _leave(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._tracked():
            self._on_stepped(optimizer)


class _Step(dict[str, Any]):
    """The keyword arguments of an optimizer's step, which PyTorch keeps exactly as long as the step lasts.

    A step that raises calls no hook at its end, but lets go of its arguments.
    """

    optimizer: Optimizer
