"""Tensors of a reader's own class: a quantized weight of bitsandbytes has methods, and remembers its scales.

PyTorch makes no such tensor out of a fake one, which has a class already. Here it gets both.
"""

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin, is_lazy  # type: ignore[attr-defined]

from memlab.vgpu import tensors
from memlab.vgpu.internals import FakeTensor, FakeTensorMode, disable_modes, tree_leaves
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


def constructing(new: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``Mine(tensor)``, and what ``Mine.__new__`` calls: C++ finds another tensor in the place of the one it makes."""

    def constructed(cls: type[torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        if cls is torch.Tensor or issubclass(cls, nn.Parameter):
            return new(cls, *args, **kwargs)
        return new(torch.Tensor, *args, **kwargs).as_subclass(cls)

    return constructed


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


@contextmanager
def as_plain(*values: Any) -> Iterator[None]:
    """A context in which what fake tensors are beside is forgotten."""
    own = [(leaf, type(leaf)) for leaf in tree_leaves(values) if isinstance(leaf, FakeTensor)]
    for tensor, _ in own:
        tensor.__class__ = FakeTensor
    try:
        yield
    finally:
        for tensor, kind in own:
            tensor.__class__ = kind


class _Kept(torch.Tensor):
    """Operators give results of the reader's class, as on a card; ``FakeTensor`` has switched that off."""

    __torch_function__ = vars(torch.Tensor)["__torch_function__"]


ATTRIBUTES = vars(torch.Tensor)["__dict__"]  # all that a tensor has


def _set_attributes(tensor: torch.Tensor, given: Mapping[str, Any]) -> None:
    own = {name: value for name, value in ATTRIBUTES.__get__(tensor).items() if _is_hidden(name)}
    ATTRIBUTES.__set__(tensor, {name: value for name, value in given.items() if not _is_hidden(name)} | own)


class Attributes(MutableMapping[str, Any]):
    """``tensor.__dict__``: fastai and MONAI copy it whole to other tensors, which are elsewhere and have other numbers.

    So what belongs to this one tensor is only found by who asks for it by name.
    """

    def __init__(self, tensor: torch.Tensor):
        self._all: dict[str, Any] = ATTRIBUTES.__get__(tensor)

    def __getitem__(self, name: str) -> Any:
        return self._all[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._all[name] = value

    def __delitem__(self, name: str) -> None:
        del self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._all if not _is_hidden(name)])  # it may be written to meanwhile

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def copy(self) -> dict[str, Any]:
        """A plain one."""
        return dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)


def _is_hidden(name: str) -> bool:
    return name.startswith("memlab_") or name in _of_fakes()


@cache
def _of_fakes() -> frozenset[str]:
    with disable_modes():
        fake = FakeTensor(FakeTensorMode(), torch.empty(0, device="meta"), torch.device("cpu"))
    return frozenset(fake.__dict__)


@lru_cache(64)  # a loop may make its classes anew each time
def _both(cls: Hashable) -> type:
    assert isinstance(cls, type)
    if issubclass(FakeTensor, cls):  # torch.Tensor: it is to be one of the reader's no longer
        return FakeTensor
    if issubclass(cls, FakeTensor):
        return cls
    attributes = property(Attributes, _set_attributes)
    return type(cls.__name__, (cls, _Kept, FakeTensor), {"__module__": cls.__module__, "__dict__": attributes})


def _readers_own(cls: type) -> type:
    """The class that one of both was made from, which a copy names as its own."""
    return cls.__bases__[0] if issubclass(cls, FakeTensor) and cls is not FakeTensor else cls


def is_own_parameter(tensor: torch.Tensor) -> bool:
    """Return True for a parameter of a subclass of ``nn.Parameter`` that has its own way to move between devices."""
    kind = type(tensor)
    return issubclass(kind, nn.Parameter) and kind is not nn.Parameter and not is_lazy(tensor)


def alike(fake: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A new fake tensor as a parameter of the class of another, which knows all that that one does but its numbers."""
    fake.__dict__ = {**tensor.__dict__, "memlab_value": None, **fake.__dict__}
    return of_class(type(tensor), fake.requires_grad_(tensor.requires_grad))
