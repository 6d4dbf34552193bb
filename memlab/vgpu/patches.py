"""What the virtual GPU changes in PyTorch's own Python, once in a process.

Each change asks whether the thread is predicting, or a tensor is fake, and is otherwise what was there before. They
stay: taking them away at the end of one prediction would pull them from under another in the next thread.
"""

import functools
import inspect

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import _foreach_supported_types

from memlab.vgpu import autocast
from memlab.vgpu.backend import DEVICE
from memlab.vgpu.loading import loading
from memlab.vgpu.mode import ENGINE_DEVICE, at_the_end, compiled_code, is_predicting, names_cuda


def apply() -> None:
    """Make the changes."""
    # Optimizers take the path that they take on CUDA by default, foreach, for tensors of these types only.
    _foreach_supported_types.append(FakeTensor)
    future = torch.__future__
    future.get_swap_module_params_on_conversion = _always_swapping(future.get_swap_module_params_on_conversion)
    torch.utils.swap_tensors = _swapping(torch.utils.swap_tensors)
    torch.nn.Module._apply = _keeping_buffers(torch.nn.Module._apply)
    torch.clear_autocast_cache = _clearing(torch.clear_autocast_cache)
    FakeTensor.to = _moving(torch.Tensor.to)
    for class_ in (torch.autocast, torch.amp.GradScaler):
        class_.__init__ = _refusing_cuda(class_.__init__)
    torch.compile = _refusing_to_compile(torch.compile)
    torch.load = loading(torch.load)


def _always_swapping(get_swap_module_params_on_conversion):
    """``Module.to`` then swaps what each parameter is, so that the parameter stays the same object, as on CUDA."""

    @functools.wraps(get_swap_module_params_on_conversion)
    def get() -> bool:
        return is_predicting() or get_swap_module_params_on_conversion()

    return get


def _swapping(swap_tensors):
    """PyTorch's own swap refuses tensors that something refers to weakly, as fake tensors are."""

    @functools.wraps(swap_tensors)
    def swap(t1, t2):
        if not is_predicting():
            return swap_tensors(t1, t2)
        swap_contents(t1, t2)
        if not isinstance(t2, FakeTensor):
            at_the_end(swap_contents, t1, t2)

    return swap


def _keeping_buffers(apply):
    """``Module.to`` puts other tensors in the place of buffers: the real ones are kept for the end."""

    @functools.wraps(apply)
    def applied(self, fn, recurse=True):
        if is_predicting():
            for name, buffer in self._buffers.items():
                if isinstance(buffer, torch.Tensor) and not isinstance(buffer, FakeTensor):
                    at_the_end(self._buffers.__setitem__, name, buffer)
        return apply(self, fn, recurse)

    return applied


def swap_contents(t1: torch.Tensor, t2: torch.Tensor) -> None:
    """Swap what two tensors are; each name keeps meaning the same object."""
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    torch._C._swap_tensor_impl(t1, t2)


def _moving(to):
    """``tensor.to(device)`` of a tensor that is there is the tensor itself; C++ compares with the engine's device."""

    @functools.wraps(to)
    def moved(self, *args, **kwargs):
        if self.fake_device == DEVICE:
            args = [ENGINE_DEVICE if _is_card(value) else value for value in args]
            if _is_card(kwargs.get("device")):
                kwargs["device"] = ENGINE_DEVICE
        return to(self, *args, **kwargs)

    return moved


def _is_card(value: object) -> bool:
    if isinstance(value, str):
        value = torch.device(value)
    return isinstance(value, torch.device) and value.type == DEVICE.type


def _clearing(clear_autocast_cache):
    """``torch.autocast`` calls this when its outermost region ends."""

    @functools.wraps(clear_autocast_cache)
    def clear():
        autocast.empty_cache()
        clear_autocast_cache()

    return clear


def _refusing_cuda(init):
    """Without a GPU PyTorch only warns of ``torch.autocast("cuda")`` and goes on in float32."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def checked(self, *args, **kwargs):
        if is_predicting():
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            device = given.arguments.get("device_type", given.arguments.get("device"))
            if device == "cuda" and given.arguments["enabled"]:
                raise names_cuda(device)
        return init(self, *args, **kwargs)

    return checked


def _refusing_to_compile(compile_):
    """``torch.compile`` inside a prediction. (The tracker refuses modules that were compiled before.)"""

    @functools.wraps(compile_)
    def checked(*args, **kwargs):
        if is_predicting():
            raise compiled_code()
        return compile_(*args, **kwargs)

    return checked
