"""Tensors of the host that become tensors of the card, and are the host's again when the prediction is over.

``Module.to`` keeps each parameter the same object, on CUDA too. Here what the object *is* is swapped.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.parameter import is_lazy

from memlab.tracking.nested import inner_tensors
from memlab.vgpu import subclasses, tensors
from memlab.vgpu.current_prediction import current, is_predicting
from memlab.vgpu.internals import FakeTensor, storage_id, swap_tensor_impl, unset_fake_temporarily, with_device
from memlab.vgpu.names import CARD
from memlab.vgpu.results import make_fake
from memlab.vgpu.subclasses import ATTRIBUTES

_thread = threading.local()  # how many calls of Module.to it is in


def swapping_when_moved(get_swap_module_params_on_conversion: Callable[..., Any]) -> Callable[..., Any]:
    """``Module.to`` swaps what each parameter is, so that the parameter stays the same object, as on CUDA.

    ``load_state_dict``, which asks for the same, writes into it, or it would lose its gradient.
    """
    return lambda: getattr(_thread, "moves", 0) > 0 or get_swap_module_params_on_conversion()


def swapping(swap_tensors: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's own swap refuses tensors that something refers to weakly, as fake tensors are."""

    def swap(t1: torch.Tensor, t2: torch.Tensor) -> None:
        if t1 is t2:
            return
        _swap_contents(t1, t2)
        if isinstance(t2, FakeTensor):
            # A graph may still know what t1 was. On CUDA that would not keep its bytes: t1 stays what it is there.
            t2.data = torch.empty(0, dtype=t2.dtype, device=t2.device)
        elif t2.device != CARD and not all(isinstance(inner, FakeTensor) for inner in inner_tensors(t2)):
            _swap_back_in_the_end(t1, t2)

    return swap


def data(real: Any) -> property:
    """``parameter.data = parameter.data.to(device)``: C++ refuses to make a tensor of the host one of the card."""

    def place(tensor: torch.Tensor) -> torch.device | None:
        return tensor.fake_device if isinstance(tensor, FakeTensor) else None

    def put(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if not is_predicting() or place(tensor) == place(value):
            real.__set__(tensor, value)
            return
        if _is_of_the_card(tensor):
            real.__set__(tensor, value if _is_of_the_card(value) else _as_of_the_card(value, tensor))
            tensor.__dict__.update(with_device(tensor.__dict__, value.device) | _of_data(value))
            return
        made = value.detach()
        if subclasses.is_own_parameter(tensor):
            made = subclasses.alike(made, tensor)
        elif isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        if not isinstance(tensor, FakeTensor):
            _swap_back_in_the_end(tensor, made)
        _swap_contents(tensor, made)

    return property(real.__get__, put)


def _is_of_the_card(tensor: torch.Tensor) -> bool:
    """Return True if C++ takes a tensor for one of the card: it was made there, or replaces one that was."""
    return isinstance(tensor, FakeTensor) and (tensor.fake_device == CARD or tensor.__dict__.get(_AWAY, False))


def _as_of_the_card(value: torch.Tensor, like: Any) -> torch.Tensor:
    """A tensor of the host that C++ takes for one of the card, as ``like`` is one. Views of one storage stay that."""
    with unset_fake_temporarily():
        storage = _shapeless(value.untyped_storage())
        shape = value.storage_offset(), value.shape, value.stride()
        made = torch.empty(0, dtype=value.dtype, device="meta").set_(storage, *shape)
    return make_fake(like.fake_mode, made, CARD)


def _shapeless(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The storage without numbers that stands for one of the host, for as long as that lives."""
    if storage.device.type == "meta":
        return storage
    away = current().away
    if storage_id(storage) not in away:
        # Referred to weakly, its bytes may go, and its number is given to no other.
        away[storage_id(storage)] = StorageWeakRef(storage), torch.UntypedStorage(storage.nbytes(), device="meta")
    return away[storage_id(storage)][1]


def _of_data(value: torch.Tensor) -> dict[str, Any]:
    """Return the attributes of a tensor's Python object that describe its data."""
    return {"memlab_value": value.__dict__.get("memlab_value"), _AWAY: value.device != CARD}


_AWAY = "memlab_away"  # its data are on the host for now


def keeping_buffers(apply: Callable[..., Any]) -> Callable[..., Any]:
    """``Module.to`` puts other tensors in the place of buffers: the real ones are kept for the end.

    Lazy parameters only remember where they are wanted; those of a class of their own move in their own way.
    """

    def applied(self: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
        apart = {
            name: _moved(parameter, fn)
            for name, parameter in self._parameters.items()
            if parameter is not None and (is_lazy(parameter) or subclasses.is_own_parameter(parameter))
        }
        self._parameters.update(dict.fromkeys(apart))  # PyTorch passes over None
        for name, buffer in self._buffers.items():
            if isinstance(buffer, torch.Tensor) and not isinstance(buffer, FakeTensor):
                current().undo.callback(self._buffers.__setitem__, name, buffer)
        _thread.moves = getattr(_thread, "moves", 0) + 1
        try:
            return apply(self, fn, recurse)
        finally:
            _thread.moves -= 1
            self._parameters.update(apart)

    return applied


def _moved(parameter: torch.nn.Parameter, fn: Callable[..., Any]) -> torch.nn.Parameter:
    """Return the tensor that ``fn`` makes of a parameter, in the same object where it has bytes to move."""
    with torch.no_grad():
        made = fn(parameter)
    if is_lazy(parameter) or made is parameter:
        return made
    parameter.data = made
    if parameter.grad is not None:
        parameter.grad = fn(parameter.grad)
    return parameter


def materializing(materialize: Callable[..., Any]) -> Callable[..., Any]:
    """A lazy parameter gets its bytes, on the card where it was moved there before."""

    def materialized(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        device = device or (CARD if tensors.is_lazy_of_the_card(self) else torch.device("cpu"))
        data = torch.empty(shape, device=device, dtype=dtype or self.dtype)
        made = torch.nn.Parameter(data, self.requires_grad) if isinstance(self, torch.nn.Parameter) else data
        _swap_contents(self, made)
        _swap_back_in_the_end(self, made)

    return materialized


def _swap_contents(t1: torch.Tensor, t2: torch.Tensor) -> None:
    """Swap what two tensors are; each name keeps meaning the same object, with the hooks that it has."""
    hooks = [(t, t._backward_hooks, t._post_accumulate_grad_hooks) for t in (t1, t2)]
    slots = [(new, {name: getattr(old, name) for name in _slot_names(type(old))}) for old, new in ((t1, t2), (t2, t1))]
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    first, second = map(ATTRIBUTES.__get__, (t1, t2))
    ATTRIBUTES.__set__(t1, second)
    ATTRIBUTES.__set__(t2, first)
    for tensor, attributes in slots:  # of DTensor, for one
        for name, value in attributes.items():
            setattr(tensor, name, value)
    swap_tensor_impl(t1, t2)
    for tensor, backward, accumulated in hooks:  # C++ knows of them only where they were set
        tensor._backward_hooks = backward
        tensor._post_accumulate_grad_hooks = accumulated


def _swap_back_in_the_end(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """The tensor is to be what it was when the prediction is over, if anybody still has it then."""
    ref = weakref.ref(tensor)

    def swap_back() -> None:
        if (alive := ref()) is not None:
            _swap_contents(alive, other)

    current().undo.callback(swap_back)


def _slot_names(kind: type) -> set[str]:
    """The attributes that a class keeps beside ``__dict__``."""
    return {name for base in kind.__mro__ for name in vars(base).get("__slots__", ())} - {"__dict__", "__weakref__"}
