"""The state before a prediction, in a form that can be compared with the state after it."""

import pathlib
from typing import Any

import torch
from torch import nn


def snapshot(outside: tuple) -> dict[str, Any]:
    """Modules, optimizers, schedulers and tensors as they are; PyTorch's random state; this folder's files."""
    files = {str(path): path.read_bytes() for path in pathlib.Path().rglob("*") if path.is_file()}
    seen = {f"{index} {type(thing).__name__}": _seen(thing) for index, thing in enumerate(outside)}
    return seen | {"random state": torch.get_rng_state().tolist(), "files": files}


def _seen(thing: Any) -> Any:
    if isinstance(thing, torch.Tensor):
        return _tensor(thing)
    if isinstance(thing, nn.Module):
        return _module(thing)
    if isinstance(thing, torch.optim.Optimizer):
        return {
            "state": {id(parameter): _seen(state) for parameter, state in thing.state.items()},
            "groups": _seen(thing.param_groups),
        }
    if isinstance(thing, torch.optim.lr_scheduler.LRScheduler):
        return _seen(thing.state_dict())
    if isinstance(thing, dict):
        return {name: _seen(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_seen(value) for value in thing]
    return thing


def _module(module: nn.Module) -> dict[str, Any]:
    parts = dict(module.named_modules(remove_duplicate=False))
    return {
        "modules": {name: (id(part), type(part), part.training) for name, part in parts.items()},
        "parameters": {
            f"{name}.{key}": _seen(tensor) for name, part in parts.items() for key, tensor in part._parameters.items()
        },
        "buffers": {
            f"{name}.{key}": _seen(tensor) for name, part in parts.items() for key, tensor in part._buffers.items()
        },
    }


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    lazy = isinstance(tensor, nn.parameter.UninitializedTensorMixin)
    kind = type(tensor).__name__
    facts = {"id": id(tensor), "kind": kind, "device": str(tensor.device), "requires grad": tensor.requires_grad}
    if lazy or kind not in ("Tensor", "Parameter") or tensor.device.type != "cpu":
        return facts
    numbers = tensor.detach().contiguous().numpy().tobytes()
    gradient = _seen(tensor.grad) if tensor.is_leaf else None
    return facts | {"shape": tuple(tensor.shape), "numbers": numbers, "gradient": gradient}
