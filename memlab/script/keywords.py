"""Arguments in a script's own calls that decide on bytes: of a DataLoader, and of transformers' ``TrainingArguments``.

They are found while the script runs, and have other values in a prediction that tries them.
"""

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader

from memlab.patching import Change, Patches
from memlab.script.edits import Edits
from memlab.script.options import Option
from memlab.vgpu.refusals import readers_call, where

# Of TrainingArguments, and of TRL's classes that inherit from it.
TRAINER_ARGUMENTS = "transformers.training_args"
TRAINERS = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
    *("max_length", "max_seq_length"),
)


class Keywords:
    """A context in which the arguments are found, and changed.

    Args:
        values: those that are changed, by the keys of their options.
        edits: changes of the source of which ``TrainingArguments`` makes some itself.

    Attributes:
        options: what was found, with the values that it had.
    """

    def __init__(self, values: Mapping[str, Any], edits: Edits):
        self._values = values
        self._edits = edits
        self._of_loaders: dict[int, Option] = {}  # by the id of the loader
        self.options: list[Option] = []

    @contextmanager
    def applied(self) -> Iterator[None]:
        """``with`` this, keywords of the script's calls are seen, and those that were chosen replaced."""
        finder = _Imported(TRAINER_ARGUMENTS, self._follow_trainers)
        sys.meta_path.insert(0, finder)
        try:
            with Patches(self._changes):
                yield
        finally:
            finder.leave()

    def _changes(self) -> Iterator[Change]:
        yield DataLoader, "__init__", self._made(DataLoader.__init__)
        yield DataLoader, "__iter__", self._begun(DataLoader.__iter__)

    def _made(self, init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def made(loader: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
            if type(batch_size) is int and kwargs.get("batch_sampler") is None and (caller := readers_call()):
                written = f"{type(loader).__name__}(..., batch_size={{}})"
                option = Option("batch_size", batch_size, place=where(frame=caller), written=written)
                self._of_loaders[id(loader)] = option
                batch_size = self._values.get(option.key, batch_size)
            init(loader, dataset, batch_size, *args, **kwargs)

        return made

    def _begun(self, iterate: Callable[..., Any]) -> Callable[..., Any]:
        """Only loaders that are used matter; one that is used without gradients is of an evaluation."""

        @functools.wraps(iterate)
        def begun(loader: Any) -> Any:
            if option := self._of_loaders.pop(id(loader), None):
                self.options.append(replace(option, evaluates=not torch.is_grad_enabled()))
            return iterate(loader)

        return begun

    def _follow_trainers(self, module: ModuleType) -> None:
        arguments: Any = module.TrainingArguments
        finish = arguments.__post_init__

        @functools.wraps(finish)
        def finished(self_: Any) -> None:
            call = ""
            if caller := readers_call():
                place = where(frame=caller)
                self._see_trainers(self_, place)
                call = f"{place}: {type(self_).__name__}"
            self._edits.leave_to_trainer(self_, call)
            finish(self_)

        arguments.__post_init__ = finished

    def _see_trainers(self, arguments: Any, place: str) -> None:
        for field in TRAINERS:
            if type(value := getattr(arguments, field, None)) is int:
                option = Option(field, value, place=place, written=f"{type(arguments).__name__}(..., {field}={{}})")
                self.options.append(option)
                setattr(arguments, field, self._values.get(option.key, value))


class _Imported(MetaPathFinder):
    """Calls a function with a module once that has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]):
        self._name = name
        self._then = then

    def leave(self) -> None:
        """Wait for it no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec
