"""The objects that hold memory between runs: frames of the last error, names of the notebook, a broken-off backward."""

import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from types import GeneratorType
from typing import Any

import torch

from memlab.tracking.nested import inner_tensors
from memlab.units import format_bytes

_DEPTH = 3  # of containers in containers that are looked into


def clear_last_error(device: torch.device) -> None:
    """Empty the frames of the last error, if they hold tensors of the device.

    Python and IPython keep the last error for their debuggers, and with it all that its functions had: often a whole
    model. Until now ``%debug`` has seen everything; from now on it sees the calls, and no variables. Where the frames
    hold nothing of the device, they stay as they are.
    """
    for name in ("last_exc", "last_value"):  # since Python 3.12, and before
        error = getattr(sys, name, None)
        while isinstance(error, BaseException):
            if any(_held(variables, device) for variables in _variables(error)):
                traceback.clear_frames(error.__traceback__)
                list(_variables(error))  # until Python 3.12 these are copies, brought up to date when asked for
            error = error.__cause__ or error.__context__


def clear_broken_backward() -> None:
    """Free the part of a graph that a backward was to go through next when an error ended it.

    Autograd (``torch/csrc/autograd/engine.cpp``) leaves what was ready to run in a queue of this thread. There it keeps
    its saved tensors and gradients until the thread's next backward, which throws away what belongs to no backward any
    more before it does its own work. So here is one, of a single number.
    """
    with torch.inference_mode(False), torch.enable_grad():
        torch.zeros((), device="cpu", requires_grad=True).clone().backward()


def note(device: torch.device, held: int, name: str) -> str:
    """In a sentence: how much of the device is held before a run, and by which names of the notebook.

    Args:
        device: the device.
        held: bytes that are allocated there.
        name: what the device is called.
    """
    holders = {key: found for key, value in _notebook().items() if (found := sum(_held(value, device).values()))}
    largest = sorted(holders, key=lambda key: holders[key], reverse=True)[:3]
    words = f"{format_bytes(held)} of {name} were held before the run"
    if not largest:
        return f"{words}, by nothing that has a name in the notebook: if it should be free, restart the kernel."
    shares = ", ".join(f"{key} ({format_bytes(holders[key])})" for key in largest)
    return f"{words}, by {shares}: what is not needed any more, free with del {', '.join(largest)}."


def _variables(error: BaseException) -> Iterator[Mapping[str, Any]]:
    """The local variables of each function that the error has left. A notebook's names are not local to anything."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            yield frame.f_locals


def _notebook() -> dict[str, Any]:
    names = vars(sys.modules["__main__"])
    return {name: value for name, value in names.items() if not name.startswith("_") and name not in ("In", "Out")}


def _held(value: Any, device: torch.device) -> dict[int, int]:
    """Bytes of each storage on the device that a value reaches, by address."""
    storages = {}
    for tensor in _tensors(value, _DEPTH):
        for inner in inner_tensors(tensor):
            if inner.device == device:
                storage = inner.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return storages


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        if value.is_leaf and value.grad is not None:
            yield value.grad
    elif depth:
        for part in _parts(value):
            yield from _tensors(part, depth - 1)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a value that may be tensors or contain some."""
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, torch.optim.Optimizer):
        yield from value.state.values()
    elif isinstance(value, GeneratorType):
        yield from inspect.getgeneratorlocals(value).values()
    elif isinstance(value, Mapping):
        yield from list(value.values())
    elif isinstance(value, list | tuple | set):
        yield from list(value)
