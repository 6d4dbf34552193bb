"""Tensors of a reader's own class: a quantized weight of bitsandbytes has methods, and remembers its scales.

PyTorch makes no such tensor out of a fake one, which has a class already. Here it gets both.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin, is_lazy  # type: ignore[attr-defined]

from memlab.vgpu import tensors
from memlab.vgpu.internals import FakeTensor
from memlab.vgpu.names import CARD, ENGINE


def making(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``torch.Tensor._make_subclass(cls, data)``, with which classes of parameters make their own."""

    def made(cls: type, data: torch.Tensor, require_grad: bool = False, **kwargs: Any) -> torch.Tensor:
        if not isinstance(data, FakeTensor):
            return make(_readers_own(cls), data, require_grad, **kwargs)
        if issubclass(cls, UninitializedTensorMixin):
            return tensors.lazy_of_the_card(make(cls, torch.empty(0, dtype=data.dtype), require_grad))
        return of_class(cls, data.detach().requires_grad_(require_grad))

    return made


def wrapping(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``torch.Tensor._make_wrapper_subclass(cls, shape)``, with which tensors that hold others make themselves.

    C++ would have such a tensor on a real card, and a process without CUDA ends at once when autograd asks for that.
    """

    def of_engine(value: Any) -> Any:
        return ENGINE if isinstance(value, str | torch.device) and tensors.is_card(value) else value

    def wrapped(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
        if "device" in kwargs:
            kwargs["device"] = of_engine(tensors.on_card(kwargs["device"]))
        return make(cls, *map(of_engine, args), **kwargs)

    return wrapped


def device(real: Any) -> property:
    """``tensor.device``: what a tensor on the card holds is where the reader put it, see ``names.py``."""

    def asked(tensor: torch.Tensor) -> torch.device:
        answer = real.__get__(tensor)
        return CARD if answer == ENGINE else answer

    return property(asked)


def is_cuda(real: Any) -> property:
    """``tensor.is_cuda``."""
    return property(lambda tensor: real.__get__(tensor) or tensor.device == CARD)


def viewing(as_subclass: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``tensor.as_subclass(cls)``."""

    def viewed(self: torch.Tensor, cls: type) -> torch.Tensor:
        return of_class(cls, self.view_as(self)) if isinstance(self, FakeTensor) else as_subclass(self, cls)

    return viewed


def of_class(cls: type, fake: torch.Tensor) -> torch.Tensor:
    """Let a fake tensor be one of the class, too."""
    fake.__class__ = _both(cls)
    if issubclass(cls, nn.Parameter):
        fake._is_param = True
    return fake


@lru_cache(64)  # a loop may make its classes anew each time
def _both(cls: Hashable) -> type:
    assert isinstance(cls, type)
    if issubclass(FakeTensor, cls):  # torch.Tensor: it is to be one of the reader's no longer
        return FakeTensor
    return cls if issubclass(cls, FakeTensor) else type(cls.__name__, (cls, FakeTensor), {"__module__": cls.__module__})


def _readers_own(cls: type) -> type:
    """The class that one of both was made from, which a copy names as its own."""
    return cls.__bases__[0] if issubclass(cls, FakeTensor) and cls is not FakeTensor else cls


@lru_cache(64)
def has_own_rules(kind: Any) -> bool:
    """Whether tensors of a class say themselves what operators do with them: DTensor, quantized weights of torchao."""
    return not issubclass(kind, FakeTensor) and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def is_own_parameter(tensor: torch.Tensor) -> bool:
    """Whether it is a parameter of somebody's own class, with its own idea of how it moves."""
    kind = type(tensor)
    return issubclass(kind, nn.Parameter) and kind is not nn.Parameter and not is_lazy(tensor)


def alike(fake: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A new fake tensor as a parameter of the class of another, which knows all that that one does but its numbers."""
    fake.__dict__ = {**tensor.__dict__, "memlab_value": None, **fake.__dict__}
    return of_class(type(tensor), fake.requires_grad_(tensor.requires_grad))
