"""Replacements, for a predicted script, of what a prediction cannot follow: compilers, processes of its own.

The script's process has an :class:`memlab.script.overlay.Overlay`, in which its files are made.
"""

import functools
import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import distributed

from memlab.errors import Refused
from memlab.patching import Change, Patches
from memlab.vgpu import serialization
from memlab.vgpu.current_prediction import current
from memlab.vgpu.ranks import process_group
from memlab.vgpu.refusals import where


def changes() -> Iterator[Change]:
    """Each change: where, its name, and what takes its place."""
    yield torch.jit, "script", _as_written
    yield serialization, "files_are_thrown_away", True
    yield torch.utils.data.DataLoader, "__init__", _without_workers(torch.utils.data.DataLoader.__init__)
    yield torch.multiprocessing, "start_processes", _one_rank
    yield torch.multiprocessing, "spawn", _one_rank
    yield distributed, "init_process_group", _own_group(distributed.init_process_group)
    yield distributed, "destroy_process_group", _to_the_end(distributed.destroy_process_group)
    for name in ("SpawnProcess", "ForkServerProcess"):
        if hasattr(multiprocessing.context, name):
            yield getattr(multiprocessing.context, name), "_Popen", staticmethod(_no_process)


EAGER = Patches(changes)


def _as_written(code: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``torch.jit.script`` that gives back what it is given; also as a decorator with arguments."""
    if code is None:
        return functools.partial(_as_written, **kwargs)
    if not (inspect.isroutine(code) and (code.__module__ or "").startswith("torch.")):  # as it is imported
        current().note(
            f"torch.jit.script at {where()} was left out: the code is predicted as it is written, not compiled."
        )
    return code


def _without_workers(init: Callable[..., None]) -> Callable[..., None]:
    """A DataLoader loads in the process itself: what its workers do takes no memory of the card."""

    @functools.wraps(init)
    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("num_workers"):
            of_workers = ("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
            kwargs = {name: value for name, value in kwargs.items() if name not in of_workers}
        init(self, *args, **kwargs)

    return initialised


def _no_process(process: Any) -> None:
    raise Refused(
        f"the script starts a process of its own at {where()}: a prediction follows one process, so do without, or "
        "measure instead."
    )


def _one_rank(function: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, **kwargs: Any) -> None:
    """Of the processes that would train, the one that is predicted is this one."""
    if nprocs > 1 and not distributed.is_initialized():
        raise Refused(
            f"the script starts {nprocs} processes that train, at {where()}: a prediction follows one of them, so say "
            "how many there are in all (--world-size)."
        )
    function(distributed.get_rank() % nprocs if distributed.is_initialized() else 0, *args)


def _own_group(init: Callable[..., Any]) -> Callable[..., Any]:
    """The process group of the prediction, which is there from its beginning to its end; or one rank's, made here."""

    def initialised(*args: Any, **kwargs: Any) -> None:
        if distributed.is_initialized():
            return
        given = inspect.signature(init).bind(*args, **kwargs).arguments
        world_size = int(given.get("world_size", os.environ.get("WORLD_SIZE", -1)))
        if given.get("backend") == "fake":  # the prediction's own
            init(*args, **kwargs)
        elif world_size == 1:
            current().undo.enter_context(process_group(1, 0))
        elif world_size > 1:
            raise Refused(
                f"the script is one of {world_size} ranks, at {where()}: a prediction has to know that from its "
                f"beginning, so say how many there are (--world-size {world_size})."
            )
        else:
            init(*args, **kwargs)  # which knows what is missing

    return initialised


def _to_the_end(destroy: Callable[..., Any]) -> Callable[..., Any]:
    """The process group of a prediction ends with it."""
    return lambda *args, **kwargs: None if distributed.is_initialized() else destroy(*args, **kwargs)
