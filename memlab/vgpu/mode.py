"""The dispatch mode of the virtual GPU: tensors on the card are shapes without numbers, the host stays real.

``VirtualMode`` is PyTorch's ``FakeTensorMode`` with four rules of its own:

1. The host computes. Integers (token numbers, indices, shuffles) and small tensors on the CPU are real, so that data
   loading, ``arange``, optimizer step counts and whatever steers the loop work. Only large floating-point tensors
   made on the CPU are fake too: an 8-billion-parameter model costs no memory before ``.to(device)``.
2. A number asked of the card (``.item()``, ``bool(tensor)``) gets a harmless answer: 0, or False. Code that branches
   on data is predicted for that one branch.
3. Autograd's engine is told that card tensors are on PyTorch's "lazy" device. The engine runs that in the calling
   thread, without streams; for the private-use device it would ask for streams, and for PyTorch to take the device
   for the accelerator of the process, which breaks backward on a real CUDA card beside it.
4. Errors say what to do.
"""

import os
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)

from memlab.errors import Unpredictable, WrongDevice
from memlab.vgpu.backend import DEVICE
from memlab.vgpu.cards import Card
from memlab.vgpu.results import remembered

ENGINE_DEVICE = torch.device("lazy", 0)
SMALL = 1000  # numbers: up to here a floating-point tensor on the host is real

prim_device = torch.ops.prim.device.default
aten = torch.ops.aten

_thread = threading.local()


def card_in_use() -> Card:
    """The card that this thread predicts for."""
    return _thread.mode.card


def is_predicting() -> bool:
    """Whether this thread is inside a prediction."""
    return getattr(_thread, "mode", None) is not None


def _forget() -> None:
    """In a process that was forked in a prediction: what it does is real."""
    _thread.mode = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def at_the_end(undo: Callable, *args: object) -> None:
    """Have ``undo(*args)`` called when this thread's prediction is over: what is real is given back as it was."""
    _thread.mode.undo.callback(undo, *args)


def engine_device(tensor: FakeTensor) -> torch.device:
    """Where C++ believes a fake tensor to be (rule 3). Python's ``tensor.device`` does not ask this."""
    device = tensor.fake_device
    return ENGINE_DEVICE if device.type == DEVICE.type else device


class VirtualMode(FakeTensorMode):
    """``with`` this, in one thread, tensors on the virtual GPU can be made and used."""

    def __init__(self, card: Card):
        super().__init__(allow_non_fake_inputs=True)
        self.card = card
        self.undo = ExitStack()
        self.attributes: dict[torch.device, dict[str, Any]] = {}  # of a fake tensor; see results.make_fake
        self._outer: list[VirtualMode | None] = []

    def __enter__(self) -> "VirtualMode":
        self._outer.append(getattr(_thread, "mode", None))  # itself, where one of its kernels enters it again
        _thread.mode = self
        return super().__enter__()

    def __exit__(self, *exception) -> None:
        super().__exit__(*exception)
        _thread.mode = self._outer.pop()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see VirtualTracker

    def run(self, func, types: Iterable[type], args: tuple, kwargs: dict) -> Any:
        """One operator, for the tracker above: straight, without a way through PyTorch's dispatcher once more."""
        torch._C._unset_dispatch_mode(_FAKE)
        try:
            return self.__torch_dispatch__(func, types, args, kwargs)
        finally:
            torch._C._set_dispatch_mode(self)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """One operator. ``types`` is empty when no fake tensor is among its arguments."""
        if func is prim_device:
            return engine_device(args[0])
        if func is aten._local_scalar_dense.default and types:
            return _harmless(args[0])
        kwargs = _on_the_card(kwargs) if kwargs else {}
        try:
            if not types and (kwargs.get("device") or _CPU).type == "cpu":
                return self._on_the_host(func, types, args, kwargs)
            out = remembered(self, func, args, kwargs, lambda: self.dispatch(func, types, args, kwargs))
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise Unpredictable(
                f"{func} at {where()} has a result that depends on the data, which a prediction does not have: "
                "write it with fixed sizes (torch.where in the place of a mask), or measure instead."
            ) from error
        except (UnsupportedOperatorException, UnsupportedFakeTensorException, NotImplementedError) as error:
            raise Unpredictable(
                f"{func} at {where()} cannot be predicted, it has no fake kernel: give it one "
                "(torch.library.register_fake), or measure instead."
            ) from error
        except RuntimeError as error:
            if any(words in str(error) for words in _TWO_DEVICES):
                raise _two_devices(func, args, kwargs) from error
            raise
        if types and func in _COPIES:
            with unset_fake_temporarily():
                return _brought_home(func, args, out)
        if func in _CORRECTIONS:
            with unset_fake_temporarily():
                return _CORRECTIONS[func](self, out)
        return out

    def _on_the_host(self, func, types, args, kwargs) -> Any:
        """Rule 1, for an operator without fake tensors."""
        if _is_factory(func):
            fake = self.dispatch(func, types, args, kwargs)
            if fake.is_floating_point() and fake.numel() > SMALL:
                return fake
        with unset_fake_temporarily():
            return func(*args, **kwargs)


_FAKE = torch._C._TorchDispatchModeKey.FAKE
_CPU = torch.device("cpu")
_TWO_DEVICES = ("on the same device", "two different devices")  # of FakeTensorMode's messages
_COPIES = {aten._to_copy.default, aten.copy_.default}


def _random_state_on_the_host(mode: VirtualMode, out: tuple) -> tuple:
    """``_efficient_attention_forward`` (attention.cu): the two numbers are on the card only in a CUDA graph."""
    return (*out[:2], torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64))


def _empty_buffer(mode: VirtualMode, out: tuple) -> tuple:
    """``log_sigmoid_forward_cuda`` (Activation.cpp): only the CPU's kernel uses the buffer."""
    return out[0], FakeTensor(mode, torch.empty(0, dtype=out[0].dtype, device="meta"), DEVICE)


# Results that fake kernels get wrong for CUDA.
_CORRECTIONS = {
    aten._scaled_dot_product_efficient_attention.default: _random_state_on_the_host,
    aten.log_sigmoid_forward.default: _empty_buffer,
}
_factories: dict[Any, bool] = {}


def _is_factory(func) -> bool:
    """Whether an operator makes a tensor of numbers that it is not given: ``empty``, ``randn``, ``arange``."""
    known = _factories.get(func)
    if known is None:
        arguments = func._schema.arguments if hasattr(func, "_schema") else ()
        names = {argument.name for argument in arguments}
        takes_tensors = any("Tensor" in str(argument.type) for argument in arguments)
        known = _factories[func] = "device" in names and not takes_tensors
    return known


def _on_the_card(kwargs: dict) -> dict:
    device = kwargs.get("device")
    if device is not None and device.type not in _HOMES:
        if device.type == ENGINE_DEVICE.type:
            return kwargs | {"device": DEVICE}
        raise names_cuda(str(device))
    return kwargs


_HOMES = {"cpu", "meta", DEVICE.type}


def _harmless(tensor: torch.Tensor) -> bool | int | float:
    if tensor.constant is not None:
        return tensor.constant.item()
    if tensor.dtype is torch.bool:
        return False
    return 0.0 if tensor.is_floating_point() else 0


def _brought_home(func, args, out: torch.Tensor) -> torch.Tensor:
    """Numbers copied from the card to the host: harmless ones, and real, where rule 1 asks for it."""
    if func is aten.copy_.default:
        return out if isinstance(args[0], FakeTensor) else args[0].zero_()
    if out.device.type == "cpu" and not (out.is_floating_point() and out.numel() > SMALL):
        return torch.zeros(out.shape, dtype=out.dtype)
    return out


def _two_devices(func, args, kwargs) -> WrongDevice:
    tensors = [value for value in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    cpu = next((tensor for tensor in tensors if tensor.device.type == "cpu"), None)
    card = next((tensor for tensor in tensors if tensor.device == DEVICE), None)
    return WrongDevice(
        f"{func} at {where()} got {_shape(cpu)} on the CPU and {_shape(card)} on the GPU: "
        "move both with .to(device), the device that train is given."
    )


def _shape(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "a tensor"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def names_cuda(name: str, error: BaseException | None = None) -> WrongDevice:
    """The error for code that names a device outright, now or where ``error`` came from."""
    return WrongDevice(
        f"train names the device {name!r} at {where(error)}: use the device that train is given, "
        "as in .to(device) and torch.autocast(device.type)."
    )


def compiled_code() -> Unpredictable:
    """The error for ``torch.compile``: compiled code runs eagerly here, and what it saves is unseen."""
    return Unpredictable(
        f"torch.compile at {where()} cannot be predicted: predict the loop without it, which gives an upper bound, "
        "or measure instead."
    )


def where(error: BaseException | None = None) -> str:
    """The line of the user's code that is running, or that an error came from: the innermost outside all libraries."""
    walk = reversed([*traceback.walk_tb(error.__traceback__)]) if error else traceback.walk_stack(None)
    for frame, line in walk:
        path = Path(frame.f_code.co_filename)
        installed = {"site-packages", "dist-packages"} & set(path.parts)
        if not installed and not any(path.is_relative_to(folder) for folder in _LIBRARIES):
            return f"{path.name}:{line}"
    return "an unknown line"


_LIBRARIES = (Path(__file__).parents[1], Path(threading.__file__).parent)  # memlab, Python's own
