"""The answers of fake tensors in a prediction, where PyTorch's own fake tensors answer for another purpose."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memlab.vgpu import values
from memlab.vgpu.current_prediction import current, is_predicting
from memlab.vgpu.facade import card_device
from memlab.vgpu.internals import FakeTensor, device_constructors, disable_modes, storage_id
from memlab.vgpu.mode import VirtualMode, has_own_rules
from memlab.vgpu.names import CARD, ENGINE
from memlab.vgpu.refusals import nested, own_thread
from memlab.vgpu.results import make_fake
from memlab.vgpu.serialization import not_writing


def on_card(value: Any) -> Any:
    """An argument, as the card where it names the card: PyTorch without CUDA does not know 0, nor "cuda" alone.

    Raises:
        WrongDevice: it names a device that the predicted machine does not have.
    """
    if isinstance(value, str | torch.device) and torch.device(value).type not in ("cpu", "meta", ENGINE.type):
        return card_device(value)
    return card_device(value) if type(value) is int else value


# What makes a tensor on a device that is named: functions of torch, and methods of tensors.
_KNOWN = set(map(id, device_constructors()))
MAKERS: list[tuple[Any, str]] = [
    (torch, name) for name, function in vars(torch).items() if id(function) in _KNOWN or name.endswith("_like")
]
MAKERS += [(torch.Tensor, name) for name in dir(torch.Tensor) if name.startswith("new_")]


def making_by_number(make: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.ones(3, device=0)``: PyTorch without CUDA does not know which device that is."""

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        if type(kwargs.get("device")) is int:
            kwargs["device"] = card_device(kwargs["device"])
        return make(*args, **kwargs)

    return made


def making(make: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.tensor(losses, device="cuda")``: PyTorch without CUDA cannot say which card that is, nor ask it."""

    def made(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return make(_numbers(data), *args, **{name: on_card(value) for name, value in kwargs.items()})

    return made


def making_sparse(make: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], device="cuda")``."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        kwargs = kwargs | dict(zip(("indices", "values", "size"), args if len(args) > 1 else (), strict=False))
        if "values" not in kwargs:  # of a size alone
            return make(*args, device=ENGINE if is_card(on_card(device)) else device, **kwargs)
        kwargs |= {name: torch.as_tensor(kwargs[name], device=device) for name in ("indices", "values")}
        return make(**kwargs)

    return made


def _numbers(data: Any) -> Any:
    """Lists of numbers, with those asked for that stand in tensors: C++ would read their memory, and there is none."""
    if not isinstance(data, list | tuple) or not any(isinstance(item, FakeTensor | list | tuple) for item in data):
        return data
    return [
        torch.tensor(item.item(), dtype=item.dtype, device="cpu") if isinstance(item, FakeTensor) else _numbers(item)
        for item in data
    ]


def asking(call: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.ops.library.scaled(tensor, norm)``: C++ reads the memory of what is given for a number, and has none."""

    def called(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        except RuntimeError as error:
            if not is_predicting() or "cannot extract" not in str(error):
                raise
        overloads = [getattr(self, name) for name in self.overloads()] if hasattr(self, "overloads") else [self]
        schema = overloads[0]._schema
        args = tuple(_asked(argument, value) for argument, value in zip(schema.arguments, args, strict=False))
        named = {argument.name: argument for argument in schema.arguments}
        return call(self, *args, **{name: _asked(named[name], value) for name, value in kwargs.items()})

    return called


def _asked(argument: Any, value: Any) -> Any:
    is_number = str(argument.type).removeprefix("Optional[").rstrip("]") in ("float", "int", "number")
    return value.item() if is_number and isinstance(value, FakeTensor) else value


def beside(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of tensors in a thread that a library has started for a prediction: there is no card there."""

    def called(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if method.__name__ == "cuda" or any(map(is_card, (*args, *kwargs.values()))):
            raise own_thread()
        return method(self, *args, **kwargs)

    return called


def host_to(to: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.to(0)``, ``tensor.to("cuda")``."""

    def moved(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if is_lazy(self):
            self.__dict__[_LAZY] = any(map(is_card, (*args, *kwargs.values())))
            return self
        args, kwargs = tuple(map(on_card, args)), {name: on_card(value) for name, value in kwargs.items()}
        if has_own_rules(type(self)) and self.device == CARD:  # C++ would see another device than the engine's
            args = tuple(None if is_card(value) else value for value in args)
            kwargs = {name: None if is_card(value) else value for name, value in kwargs.items()}
        return to(self, *args, **kwargs)

    return moved


def lazy_of_the_card(tensor: torch.Tensor) -> torch.Tensor:
    """A lazy parameter, made on the card."""
    tensor.__dict__[_LAZY] = True
    return tensor


def is_lazy_of_the_card(tensor: torch.Tensor) -> bool:
    """Return True if a lazy parameter, which has no bytes yet, was moved to the card."""
    return tensor.__dict__.get(_LAZY, False)


_LAZY = "memlab_on_card"


def host_type(type_: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.type(torch.cuda.FloatTensor)``, as it was once written."""

    def typed(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            return type_(self).replace(f".{ENGINE.type}.", f".{CARD.type}.")
        name = f"{dtype.__module__}.{dtype.__name__}" if isinstance(dtype, type) else str(dtype)
        if not name.startswith("torch.cuda."):
            return type_(self, dtype, *args, **kwargs)
        return self.to(CARD, getattr(torch, name.removeprefix("torch.cuda.")).dtype)

    return typed


def host_cuda(cuda: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.cuda()``."""
    return lambda self, device=None, non_blocking=False, **kwargs: self.to(card_device(device))


def host_pin_memory(pin_memory: Callable[..., Any]) -> Callable[..., Any]:
    """Pinned memory is the host's: the same bytes, elsewhere."""
    return lambda self, *args: self.clone()


def host_numpy(numpy: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.numpy()``: an array that is not written to files."""
    return lambda self, **kwargs: numpy(self, **kwargs).view(Unwritten)


class Unwritten(np.ndarray):
    """An array of a prediction. What would write it to a file writes nothing."""

    def tofile(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""
        if not is_predicting():  # it has outlived its prediction
            return super().tofile(*args, **kwargs)
        return not_writing("ndarray.tofile")(super().tofile)(*args, **kwargs)

    def dump(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""
        if not is_predicting():
            return super().dump(*args, **kwargs)
        return not_writing("ndarray.dump")(super().dump)(*args, **kwargs)


def _new(original: Callable[..., Any]) -> Any:
    """``FakeTensor(mode, elem, device)``: on the card with the dispatch keys of the slot, see ``names.py``.

    And ``type(parameter)(tensor, requires_grad=True)``, by which libraries make one parameter in the place of another.
    """

    def new(cls: type, mode: Any = None, elem: Any = None, device: Any = None, *rest: Any, **more: Any) -> torch.Tensor:
        if is_predicting() and isinstance(mode, torch.Tensor):
            return nn.Parameter(mode, more.get("requires_grad", True))
        if type(mode) is VirtualMode and device is not None and torch.device(device).type == CARD.type:
            fake = make_fake(mode, elem.detach() if elem.requires_grad else elem, CARD)
            fake.constant = rest[0] if rest else more.get("constant")
            return fake.requires_grad_(elem.requires_grad)
        return original(cls, mode, elem, device, *rest, **more)

    return staticmethod(new)


def _to(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.to(device)`` of a tensor that is there is the tensor itself; C++ compares with the engine's device."""

    def to(self: FakeTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.fake_device == CARD:
            args = tuple(ENGINE if is_card(value) and card_device(value) else value for value in args)
            if is_card(kwargs.get("device")):
                kwargs["device"] = ENGINE
        return torch.Tensor.to(self, *args, **kwargs)

    return to


def _new_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.new_tensor(losses)``."""
    return lambda self, data, **kwargs: torch.Tensor.new_tensor(self, _numbers(data), **kwargs)


def is_card(value: Any) -> bool:
    """Return True if an argument names the card."""
    if isinstance(value, str):
        return value.partition(":")[0] == CARD.type
    return type(value) is int or (isinstance(value, torch.device) and value.type == CARD.type)


def _format(original: Callable[..., Any]) -> Callable[..., Any]:
    """``f"{loss:.3f}"``."""

    def formatted(self: FakeTensor, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 and spec else object.__format__(self, spec)

    return formatted


def _numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    """Of the card: PyTorch's own error. Of the host: numbers that nobody knows."""

    def numpy(self: FakeTensor, *, force: bool = False) -> np.ndarray:
        if self.fake_device == CARD and not force:
            raise TypeError(
                f"can't convert {CARD} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        if self.requires_grad and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        with disable_modes():
            return values.numbers(self).numpy()

    return numpy


def _deepcopy(original: Callable[..., Any]) -> Callable[..., Any]:
    """As ``Tensor.__deepcopy__``, without what a fake tensor carries for PyTorch's own use."""

    def copied(self: FakeTensor, memo: dict[int, Any]) -> torch.Tensor:
        if type(self.fake_mode) is not VirtualMode:
            return original(self, memo)
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user support the deepcopy protocol at the moment."
            )
        with torch.no_grad():
            new = self.detach().clone(memory_format=torch.preserve_format)
        new.requires_grad_(self.requires_grad)
        if isinstance(self, nn.Parameter):
            new = nn.Parameter(new.detach(), self.requires_grad)
        if self.grad is not None:
            new.grad = self.grad.__deepcopy__(memo)
        memo[id(self)] = new
        return new

    return copied


def _get_nested_int(original: Callable[..., Any]) -> Callable[..., Any]:
    """The ragged size of a jagged tensor is asked for."""

    def asked(self: FakeTensor, **kwargs: Any) -> Any:
        if type(self.fake_mode) is VirtualMode:
            raise nested("torch.nested")
        return original(self, **kwargs)

    return asked


def _data_ptr(original: Callable[..., Any]) -> Callable[..., Any]:
    """Addresses tell which tensors share memory, so each storage has one of its own, and 0 when it is empty."""
    return lambda self: self.untyped_storage().data_ptr() + self.storage_offset() * self.element_size()


def storage_address(address: Callable[[torch.UntypedStorage], int]) -> Callable[[torch.UntypedStorage], int]:
    """The same for the storage itself. No byte of it is anywhere."""

    def answered(self: torch.UntypedStorage) -> int:
        if self.device.type != "meta":
            return address(self)
        if not self.nbytes():
            return 0
        graphs = current().graphs
        return storage_id(self) if graphs is None else graphs.address(self)

    return answered


# By name: what takes the place of FakeTensor's own, made from that.
METHODS: dict[str, Callable[..., Any]] = {
    "__new__": _new,
    "__format__": _format,
    "__deepcopy__": _deepcopy,
    "to": _to,
    "new_tensor": _new_tensor,
    "data_ptr": _data_ptr,
    "cuda": host_cuda,  # to() does the rest, wherever the tensor is
    "numpy": _numpy,
    "get_nested_int": _get_nested_int,
    "is_cuda": lambda original: property(lambda self: self.fake_device.type == CARD.type),
    "record_stream": lambda original: lambda self, stream: None,
}
