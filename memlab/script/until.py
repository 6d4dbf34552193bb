"""A script evaluates its model and saves it, besides its steps. For ``memlab predict --until``."""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.distributed import checkpoint
from torch.utils.data import DataLoader

from memlab.errors import BadValue
from memlab.patching import Change, Patches
from memlab.script.child import MILESTONES
from memlab.tracking.modules import is_evaluated
from memlab.vgpu.refusals import where_in_all


class Until:
    """A context in which it is seen that the script that runs has evaluated, or saved, after its first step.

    Args:
        milestone: a key of ``child.MILESTONES``.

    Attributes:
        reached: whether it has.
        is_watching: set after the first step: some scripts evaluate before it, with less in memory.
        shortens: set when only the milestone is waited for: then every DataLoader that the model is trained from ends.

    Raises:
        BadValue: for another word.
    """

    def __init__(self, milestone: str):
        if milestone not in MILESTONES:
            raise BadValue(f"until={milestone!r} is not known: give one of {', '.join(MILESTONES)}.")
        self.milestone = milestone
        self.reached = self.is_watching = self.shortens = False
        self.kept_at = ""  # the line where the model was called in eval mode with gradients on, and no backward since
        self._depth = 0  # of modules that are at work
        self._used_last: Batches | None = None
        self._trained_from: WeakSet[Batches] = WeakSet()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """``with`` this, the script is followed to its milestone."""
        with Patches(self._changes):
            if self.milestone == "saved":
                yield
                return
            hooks = nn.modules.module
            with ExitStack() as undo:
                undo.callback(hooks.register_module_forward_pre_hook(self._enter).remove)
                undo.callback(hooks.register_module_forward_hook(self._leave, always_call=True).remove)
                yield

    def see_backward(self) -> None:
        """The batch that was used last has trained the model."""
        if not self.reached:
            self.kept_at = ""
        if self._used_last is not None:
            self._trained_from.add(self._used_last)

    def gives(self, batches: "Batches") -> bool:
        """True if a DataLoader gives one more batch, where its script asks for it."""
        self._used_last = batches
        return not (self.shortens and batches in self._trained_from)

    def _changes(self) -> Iterator[Change]:
        yield DataLoader, "__iter__", self._iterate(DataLoader.__iter__)
        if self.milestone == "saved":
            savers = [(torch, "save"), (checkpoint, "save")]
            if importlib.util.find_spec("safetensors"):
                safetensors = importlib.import_module("safetensors.torch")
                savers += [(safetensors, "save_file"), (safetensors, "save_model")]
            yield from ((owner, name, self._save(getattr(owner, name))) for owner, name in savers)

    def _iterate(self, iterate: Callable[..., Any]) -> Callable[..., "Batches"]:
        return functools.wraps(iterate)(lambda loader: Batches(iterate(loader), self))

    def _save(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def saved(*args: Any, **kwargs: Any) -> Any:
            result = save(*args, **kwargs)
            self.reached |= self.is_watching
            return result

        return saved

    def _enter(self, module: nn.Module, args: Any) -> None:
        """A frozen model that takes part in the training, an encoder or a teacher, is called without gradients too."""
        self._depth += 1
        if not self.is_watching or self.reached or self._depth > 1:  # parts of what is trained may be in eval mode
            return
        if module.training:
            self.reached = bool(self.kept_at)  # that was an evaluation, then
        elif is_evaluated(module):
            self.reached = True
        elif any(parameter.requires_grad for parameter in module.parameters()):
            self.kept_at = self.kept_at or where_in_all()

    def _leave(self, module: nn.Module, *rest: Any) -> None:
        self._depth -= 1


class Batches:
    """An iterator of a DataLoader that ends when nothing is trained any more."""

    def __init__(self, iterator: Iterator[Any], until: Until):
        self._iterator = iterator
        self._until = until

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Any:
        if not self._until.gives(self):
            raise StopIteration
        return next(self._iterator)

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)
