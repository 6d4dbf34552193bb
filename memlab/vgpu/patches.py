"""What changes in PyTorch's own Python while predictions run, in any thread.

Each change asks whether this thread is predicting, and is otherwise what was there before. The first prediction makes
the changes, and the last one to end takes them away: outside of predictions PyTorch is as it was.
"""

import functools
import importlib.util
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from memlab.patching import Change, Patches, where
from memlab.tracking.nested import inner_tensors
from memlab.vgpu import autocast, facade, saving, tensors
from memlab.vgpu.current import current, is_beside, is_predicting, stand_beside
from memlab.vgpu.internals import FakeTensor, data_loader_iterator, foreach_types, lift_on_the_host, swap_tensor_impl
from memlab.vgpu.names import CARD, SLOT_NAME
from memlab.vgpu.refusals import compiled_code, is_readers_own, own_thread


def _changes() -> Iterator[Change]:
    """Each change: where, its name, and what takes its place."""
    for owner, answers in facade.ANSWERS:
        for name, answer in answers.items():
            if hasattr(owner, name):
                yield owner, name, _in_predictions(answer)(getattr(owner, name))
    for owner, name, answer in facade.CLASSES:
        yield owner, name, _class_in_predictions(getattr(owner, name), answer)
    for name in facade.AUTOCAST:
        function = getattr(torch, name)
        yield torch, name, _in_predictions(facade.of_the_slot(function))(function)
    for owner, name, wrap in _WRAPPED:
        change = wrap(getattr(owner, name))
        yield owner, name, _in_predictions(change)(getattr(owner, name))
    for name, change in tensors.METHODS.items():
        yield FakeTensor, name, change(getattr(FakeTensor, name, None))
    for name in ("to", "cuda", "type", "pin_memory", "numpy"):
        method = getattr(torch.Tensor, name)
        answered = _in_predictions(getattr(tensors, f"host_{name}")(method))(method)
        yield torch.Tensor, name, where(is_beside, tensors.beside(method), answered)
    yield torch.Tensor, "data", _data(torch.Tensor.data)
    for name in ("save", "savez", "savez_compressed", "savetxt"):
        yield np, name, _in_predictions(_unwritten(f"numpy.{name}"))(getattr(np, name))
    if importlib.util.find_spec("safetensors"):
        safetensors = importlib.import_module("safetensors.torch")
        for name in ("save_file", "save_model", "serialize_file"):
            yield safetensors, name, _in_predictions(_unwritten("safetensors"))(getattr(safetensors, name))
        load_file = safetensors.load_file
        yield safetensors, "load_file", _in_predictions(saving.load_safetensors(load_file))(load_file)
        for name in {"_flatten", "_flatten_as_ptr"} & vars(safetensors).keys():  # they read the numbers
            yield safetensors, name, _in_predictions(lambda *args: {})(getattr(safetensors, name))


def _unwritten(what: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: saving.note_unwritten(what)


def _in_predictions(answer: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The answer in a thread that predicts, else the real function."""
    return functools.partial(where, is_predicting, answer)


def _class_in_predictions(real: type, answer: type) -> type:
    """A class that makes the one in a thread that predicts, else the other; both count as its instances."""

    class Chosen(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return (answer if is_predicting() else real)(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (answer, real) if isinstance(real, type) else answer)

    return Chosen(real.__name__, (), {"__doc__": real.__doc__})


def _always_swapping(get_swap_module_params_on_conversion: Callable[..., Any]) -> Callable[..., Any]:
    """``Module.to`` then swaps what each parameter is, so that the parameter stays the same object, as on CUDA."""
    return lambda: True


def _swapping(swap_tensors: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's own swap refuses tensors that something refers to weakly, as fake tensors are."""

    def swap(t1: torch.Tensor, t2: torch.Tensor) -> None:
        if t1 is t2:
            return
        swap_contents(t1, t2)
        if isinstance(t2, FakeTensor):
            # A graph may still know what t1 was. On CUDA that would not keep its bytes: t1 stays what it is there.
            t2.data = torch.empty(0, dtype=t2.dtype, device=t2.device)
        elif not all(isinstance(inner, FakeTensor) for inner in inner_tensors(t2)):  # as of a DTensor of the prediction
            _swap_back_in_the_end(t1, t2)

    return swap


def _data(real: Any) -> property:
    """``parameter.data = parameter.data.to(device)``: C++ refuses to make a tensor of the host one of the card."""

    def place(tensor: torch.Tensor) -> torch.device | None:
        return tensor.fake_device if isinstance(tensor, FakeTensor) else None

    def put(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if not is_predicting() or place(tensor) == place(value):
            real.__set__(tensor, value)
            return
        made = value.detach()
        made = torch.nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else made
        if not isinstance(tensor, FakeTensor):
            _swap_back_in_the_end(tensor, made)
        swap_contents(tensor, made)

    return property(real.__get__, put)


def _keeping_buffers(apply: Callable[..., Any]) -> Callable[..., Any]:
    """``Module.to`` puts other tensors in the place of buffers: the real ones are kept for the end.

    Lazy parameters only remember where they are wanted.
    """

    def applied(self: torch.nn.Module, fn: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
        lazy = {
            name: fn(parameter)
            for name, parameter in self._parameters.items()
            if parameter is not None and is_lazy(parameter)
        }
        self._parameters.update(dict.fromkeys(lazy))  # they have no bytes to move yet; PyTorch passes over None
        for name, buffer in self._buffers.items():
            if isinstance(buffer, torch.Tensor) and not isinstance(buffer, FakeTensor):
                current().undo.callback(self._buffers.__setitem__, name, buffer)
        try:
            return apply(self, fn, recurse)
        finally:
            self._parameters.update(lazy)

    return applied


def swap_contents(t1: torch.Tensor, t2: torch.Tensor) -> None:
    """Swap what two tensors are; each name keeps meaning the same object, with the hooks that it has."""
    hooks = [(t, t._backward_hooks, t._post_accumulate_grad_hooks) for t in (t1, t2)]
    slots = [(new, {name: getattr(old, name) for name in slot_names(type(old))}) for old, new in ((t1, t2), (t2, t1))]
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
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
            swap_contents(alive, other)

    current().undo.callback(swap_back)


def slot_names(kind: type) -> set[str]:
    """The attributes that a class keeps beside ``__dict__``."""
    return {name for base in kind.__mro__ for name in vars(base).get("__slots__", ())} - {"__dict__", "__weakref__"}


def _materializing(materialize: Callable[..., Any]) -> Callable[..., Any]:
    """A lazy parameter gets its bytes, on the card where it was moved there before."""

    def materialized(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        device = device or (CARD if tensors.is_lazy_of_the_card(self) else torch.device("cpu"))
        data = torch.empty(shape, device=device, dtype=dtype or self.dtype)
        made = torch.nn.Parameter(data, self.requires_grad) if isinstance(self, torch.nn.Parameter) else data
        swap_contents(self, made)
        _swap_back_in_the_end(self, made)

    return materialized


def _taken_back(set_default_device: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.set_default_device("cuda")``: until the prediction is over."""

    def set_(device: Any) -> None:
        before = torch.get_default_device()
        current().undo.callback(set_default_device, None if before.type == "cpu" else before)
        set_default_device(tensors.on_card(device))

    return set_


def _on_the_card(to: Callable[..., Any]) -> Callable[..., Any]:
    """``module.to(0)``: PyTorch without CUDA does not know what device 0 is."""

    def moved(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        return to(module, *map(tensors.on_card, args), **{name: tensors.on_card(v) for name, v in kwargs.items()})

    return moved


def _with_index(make: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.tensor(1, device="cuda")``: PyTorch without CUDA cannot say which card that is.

    Its number is made on the host first, where a switch of the thread says so. Each fake mode that is left puts that
    back as it found it, so it is set here again.
    """

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        lift_on_the_host(True)
        return make(*args, **{name: tensors.on_card(value) for name, value in kwargs.items()})

    return made


def _clearing(clear_autocast_cache: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.autocast`` calls this when its outermost region ends."""

    def clear() -> None:
        autocast.empty_cache()
        clear_autocast_cache()

    return clear


def _in_the_slot(init: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.autocast("cuda")``: the card's tensors have the slot's dispatch keys."""

    def initialised(self: torch.autocast, device_type: str, *args: Any, **kwargs: Any) -> None:
        init(self, SLOT_NAME if device_type == "cuda" else device_type, *args, **kwargs)

    return initialised


def _refusing(what: str) -> Callable[..., Any]:
    """What makes a graph of code, and runs that in the place of the code."""

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> None:
            raise compiled_code(what)

        return refused

    return refusing


def _is_readers_own(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    code = getattr(target, "__code__", None) or getattr(type(thread).run, "__code__", None)
    return code is not None and is_readers_own(code.co_filename)


def _refusing_threads(start: Callable[..., Any]) -> Callable[..., Any]:
    """A thread of the reader's own would find no card: it is refused here, before anybody waits for it.

    Those of libraries (a pool, a progress bar) may work; asking for the card is refused to them.
    """

    def started(self: threading.Thread) -> None:
        if _is_readers_own(self):
            raise own_thread()
        run = self.run

        def beside() -> None:
            stand_beside()
            run()

        self.run = beside  # type: ignore[method-assign]
        start(self)

    return started


def _to_the_end(step: Callable[..., Any]) -> Callable[..., Any]:
    """L-BFGS ends a step early where numbers say so. Nobody knows them: it takes all the iterations it may."""

    @functools.wraps(step)
    def stepped(self: torch.optim.LBFGS, closure: Callable[..., Any]) -> Any:
        group = self.param_groups[0]
        before = {name: group[name] for name in ("tolerance_grad", "tolerance_change")}
        group.update(dict.fromkeys(before, -math.inf))
        try:
            return step(self, closure)
        finally:
            group.update(before)

    return stepped


def _quiet(logger: Any) -> Callable[..., Any]:
    """DDP's logger measures times, for which it has a clock on the CPU and on CUDA; elsewhere it complains."""

    class Quiet(logger):  # type: ignore[misc]
        def set_runtime_stats_and_log(self) -> None:
            pass

    return Quiet


def _without_pinning(init: Callable[..., Any]) -> Callable[..., Any]:
    """Pinned memory is the host's, and pinning it takes a real card."""

    def initialised(self: Any, loader: Any) -> None:
        init(self, loader)
        self._pin_memory = False

    return initialised


_WRAPPED: list[tuple[Any, str, Callable[..., Any]]] = [
    (torch.__future__, "get_swap_module_params_on_conversion", _always_swapping),
    (torch.utils, "swap_tensors", _swapping),
    (torch.nn.Module, "_apply", _keeping_buffers),
    (torch.nn.Module, "to", _on_the_card),
    (torch.nn.parameter.UninitializedTensorMixin, "materialize", _materializing),  # type: ignore[attr-defined]
    (torch, "set_default_device", _taken_back),
    (torch, "tensor", _with_index),
    (torch, "as_tensor", _with_index),
    (torch, "clear_autocast_cache", _clearing),
    (torch.autocast, "__init__", _in_the_slot),
    (torch, "compile", _refusing("torch.compile")),
    (torch.jit, "script", _refusing("torch.jit.script")),
    (torch.jit, "trace", _refusing("torch.jit.trace")),
    (torch.optim.LBFGS, "step", _to_the_end),
    (threading.Thread, "start", _refusing_threads),
    (torch, "save", saving.save),
    (torch, "load", saving.load),
    (torch.serialization, "save", saving.save),
    (torch.serialization, "load", saving.load),
    (torch._C, "_get_accelerator", lambda real: lambda *args: torch.device(CARD.type)),
    # The other ranks, who are not there, have the same model.
    (torch.distributed, "Logger", _quiet),
    (torch.distributed, "_verify_params_across_processes", lambda real: lambda *args: None),
    (data_loader_iterator, "__init__", _without_pinning),
]


class _WithForeach(Patches):
    """Optimizers and clipping take their default path on CUDA, foreach, for tensors of the types in two lists only.

    They are written to: others (DTensor) write to them too, and keep them.
    """

    def _apply(self) -> None:
        super()._apply()
        for types in foreach_types:
            types.append(FakeTensor)

    def _take_away(self) -> None:
        for types in foreach_types:
            if FakeTensor in types:
                types.remove(FakeTensor)
        super()._take_away()


PATCHES = _WithForeach(_changes)
