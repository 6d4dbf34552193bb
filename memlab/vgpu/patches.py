"""The changes in PyTorch's own Python while predictions run, in any thread.

Each change asks whether this thread is predicting, and is otherwise what was there before. The first prediction makes
the changes, and the last one to end takes them away: outside of predictions PyTorch is as it was.
"""

import functools
import importlib.util
import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from memlab.patching import Change, Patches, behind, class_where, where
from memlab.vgpu import autocast, facade, libraries, serialization, subclasses, swapping, switches, tensors
from memlab.vgpu.current_prediction import current, is_beside, is_predicting, stand_beside
from memlab.vgpu.internals import (
    FakeTensor,
    compilers_tables,
    data_loader_iterator,
    data_parallel,
    foreach_types,
    jit_builtins,
    kinds_of_operators,
    make_subclass,
    make_wrapper,
    torch_c,
)
from memlab.vgpu.names import CARD, ENGINE, SLOT_NAME
from memlab.vgpu.refusals import is_readers_own, own_thread, scripted_code


def _changes() -> Iterator[Change]:
    """Each change: where, its name, and what takes its place."""
    rules, names = compilers_tables()
    for name in names:  # first: PyTorch's own functions are in their places
        yield rules, name, _as_it_is(getattr(rules, name))
    yield from switches.changes()
    for owner, answers in facade.ANSWERS:
        for name, answer in answers.items():
            if hasattr(owner, name):
                yield owner, name, _in_predictions(answer)(getattr(owner, name))
    for name, answer in facade.OF_CUDA_BUILDS.items():
        yield torch_c, name, _in_predictions(answer)(getattr(torch_c, name, answer))
    find = jit_builtins._find_builtin  # by which TorchScript knows PyTorch's own functions
    yield jit_builtins, "_find_builtin", _in_predictions(lambda function: find(behind(function)))(find)
    if not torch.backends.cuda.is_built():
        yield torch, "device", _class_in_predictions(torch.device, facade.ByNumber)
        for owner, name in tensors.MAKERS:
            make = getattr(owner, name)
            yield owner, name, _in_predictions(tensors.making_by_number(make))(make)
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
        yield torch.Tensor, name, _Method(method, where(is_beside, tensors.beside(method), answered))
    yield torch.Tensor, "_make_subclass", staticmethod(_in_predictions(subclasses.making(make_subclass))(make_subclass))
    constructing = _in_predictions(subclasses.constructing(torch.Tensor.__new__))(torch.Tensor.__new__)
    yield torch.Tensor, "__new__", staticmethod(constructing)
    wrap = _in_predictions(subclasses.wrapping(make_wrapper))(make_wrapper)
    yield torch.Tensor, "_make_wrapper_subclass", staticmethod(wrap)
    yield torch.Tensor, "device", subclasses.device(torch.Tensor.device)
    yield torch.Tensor, "is_cuda", subclasses.is_cuda(torch.Tensor.is_cuda)
    yield torch.Tensor, "data", swapping.data(torch.Tensor.data)
    yield data_parallel, "_streams", None  # they belong to the prediction that makes them
    for kind in kinds_of_operators:
        yield kind, "__call__", tensors.asking(kind.__call__)
    # Before PyTorch raises what a shape's rule says of the loop's own tensors it logs that, with its traceback.
    log = logging.getLogger("torch._subclasses.fake_tensor")
    yield log, "filter", _in_predictions(lambda record: False)(log.filter)
    for name in ("save", "savez", "savez_compressed", "savetxt"):
        write = getattr(np, name)
        yield np, name, _in_predictions(serialization.not_writing(f"numpy.{name}")(write))(write)
    if importlib.util.find_spec("safetensors"):
        safetensors = importlib.import_module("safetensors.torch")
        for name in ("save_file", "save_model", "serialize_file"):
            yield safetensors, name, _in_predictions(_writing_nothing)(getattr(safetensors, name))
        load_file = safetensors.load_file
        yield safetensors, "load_file", _in_predictions(serialization.load_safetensors(load_file))(load_file)
        for name in {"_flatten", "_flatten_as_ptr"} & vars(safetensors).keys():  # they read the numbers
            yield safetensors, name, _in_predictions(lambda *args: {})(getattr(safetensors, name))


class _Method:
    """A method in the place of another, and taken for it where libraries have a table of PyTorch's (torchvision's)."""

    def __init__(self, real: Any, answer: Callable[..., Any]):
        functools.update_wrapper(self, real)
        self._real = real
        self._answer = answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._answer(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        # Also that of another prediction, in which a library was imported and filled its table.
        return (other._real if isinstance(other, _Method) else other) is self._real

    def __hash__(self) -> int:
        return hash(self._real)


def _writing_nothing(*args: Any, **kwargs: Any) -> None:
    serialization.note_unwritten("safetensors")


def _as_it_is(table: Callable[[], Any]) -> Callable[[], Any]:
    """Give the table as it is now, also when it is to be made anew: as a process group does to the compiler's."""
    made = table()
    return functools.cache(lambda: made)


def _in_predictions(answer: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The answer in a thread that predicts, else the real function."""
    return functools.partial(where, is_predicting, answer)


def _class_in_predictions(real: type, answer: type) -> type:
    """A class that makes the one in a thread that predicts, else the other; both count as its instances."""
    return class_where(is_predicting, answer, real)


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


def _refusing(what: str, *, may: Callable[[FrameType], bool] = lambda caller: False) -> Callable[..., Any]:
    """Refuse a function that makes a graph of code, to run in the place of the code, but to callers who ``may``."""

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(2)  # behind the patch that leads here
            if may(caller):
                return real(*args, **kwargs)
            raise scripted_code(what)

        return refused

    return refusing


def _tracing(trace: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.jit.trace``, refused but to PyTorch: ``SummaryWriter.add_graph`` draws what it gets, and nobody runs it.

    There the model runs as often as it is traced and checked, and the drawing is empty: TorchScript would keep fake
    tensors.
    """
    refusing = _refusing("torch.jit.trace")(trace)

    def traced(model: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_torch(sys._getframe(2)):
            return refusing(model, inputs, *args, **kwargs)
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        model(*inputs)
        with torch.no_grad():
            _outputs = [model(*inputs) for _ in range(2)]  # are compared
        return trace(torch.nn.Identity(), torch.empty(0))

    return traced


def _is_torch(caller: FrameType) -> bool:
    return bool(caller.f_globals.get("__name__", "").startswith("torch."))


def _is_imported(caller: FrameType) -> bool:
    """True while a module is imported, a library's or the loop's own."""
    return caller.f_code.co_name == "<module>"


def _is_imported_or_torch(caller: FrameType) -> bool:
    return _is_imported(caller) or _is_torch(caller)


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


def _as_on_cuda(run_backward: Callable[..., Any]) -> Callable[..., Any]:
    """``backward`` and ``grad``: as CUDA's thread would run the nodes, in its order and on its streams."""

    def run(*args: Any, **kwargs: Any) -> Any:
        prediction = current()
        with prediction.memory.streams.backward():
            result = prediction.node_order.run(run_backward, *args, **kwargs)
        if not prediction.node_order.is_running:
            prediction.repeats.end_backward()
        return result

    return run


def _compiling(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.compile`` decides by the forward that it finds how a model is compiled."""

    @functools.wraps(compile_)
    def compiling(model: Any = None, **options: Any) -> Any:
        if isinstance(getattr(model, "__self__", model), torch.nn.Module):
            current().repeats.retire()
        return compile_(model, **options)

    return compiling


def _quiet(logger: Any) -> Callable[..., Any]:
    """DDP's logger measures times, for which it has a clock on the CPU and on CUDA; elsewhere it complains."""

    class Quiet(logger):  # type: ignore[misc]
        def set_runtime_stats_and_log(self) -> None:
            pass

    return Quiet


def _on_its_device(group: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``group`` with the card in place of the engine's device; by it optimizers and clipping choose foreach."""

    def grouped(*args: Any) -> dict[tuple[Any, Any], Any]:
        return {(CARD if on == ENGINE else on, dtype): rest for (on, dtype), rest in group(*args).items()}

    return grouped


def _without_pinning(init: Callable[..., Any]) -> Callable[..., Any]:
    """Pinned memory is the host's, and pinning it takes a real card."""

    def initialised(self: Any, loader: Any) -> None:
        init(self, loader)
        self._pin_memory = False

    return initialised


_WRAPPED: list[tuple[Any, str, Callable[..., Any]]] = [
    (torch.__future__, "get_swap_module_params_on_conversion", swapping.swapping_when_moved),
    (torch.utils, "swap_tensors", swapping.swapping),
    (torch.nn.Module, "_apply", swapping.keeping_buffers),
    (torch.nn.Module, "to", _on_the_card),
    (torch.nn.parameter.UninitializedTensorMixin, "materialize", swapping.materializing),  # type: ignore[attr-defined]
    (torch.Tensor, "as_subclass", subclasses.viewing),
    (torch.UntypedStorage, "data_ptr", tensors.storage_address),
    (torch, "set_default_device", _taken_back),
    (torch, "tensor", tensors.making),
    (torch, "as_tensor", tensors.making),
    (torch, "asarray", tensors.making),
    (torch, "sparse_coo_tensor", tensors.making_sparse),
    (torch, "clear_autocast_cache", _clearing),
    (torch.autocast, "__init__", _in_the_slot),
    (torch, "compile", _compiling),
    (torch.jit, "script", _refusing("torch.jit.script", may=_is_imported_or_torch)),
    (torch.jit, "trace", _tracing),
    (torch.optim.LBFGS, "step", _to_the_end),
    (threading.Thread, "start", _refusing_threads),
    (ThreadPoolExecutor, "submit", libraries.submitting),
    (torch.autograd, "_engine_run_backward", _as_on_cuda),
    (torch, "save", serialization.save),
    (torch, "load", serialization.load),
    (torch.serialization, "save", serialization.save),
    (torch.serialization, "load", serialization.load),
    (torch_c, "_group_tensors_by_device_and_dtype", _on_its_device),
    (torch_c, "_get_accelerator", lambda real: lambda *args: torch.device(CARD.type)),
    # The other ranks, who are not there, have the same model.
    (torch.distributed, "Logger", _quiet),
    (torch.distributed, "_verify_params_across_processes", lambda real: lambda *args: None),
    (data_loader_iterator, "__init__", _without_pinning),
]


CUDA = "13.0"  # of PyTorch's own packages


class _Version(ModuleType):
    """``torch.version``: libraries ask it for CUDA's before they look at the card."""

    @property
    def cuda(self) -> str | None:
        """CUDA's version if the build has CUDA; bitsandbytes gets the real one, as it fails without a driver."""
        real: str | None = vars(self)["cuda"]
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return CUDA if real is None and is_predicting() and not asks.startswith("bitsandbytes.") else real


class _WithMore(Patches):
    """Optimizers and clipping take their default path on CUDA, foreach, for tensors of the types in two lists only.

    They are written to: others (DTensor) write to them too, and keep them. A module's attribute is of its class.
    """

    def _apply(self) -> None:
        super()._apply()
        torch.version.__class__ = _Version
        for types in foreach_types:
            types.append(FakeTensor)

    def _take_away(self) -> None:
        for types in foreach_types:
            if FakeTensor in types:
                types.remove(FakeTensor)
        torch.version.__class__ = ModuleType
        super()._take_away()


PATCHES = _WithMore(_changes)
