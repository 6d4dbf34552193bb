"""The changes in PyTorch's compiler, for a thread that compiles for the virtual card.

PyTorch traces code on fake tensors. Those of the card have the slot's dispatch keys and the engine's device, as the
prediction's own have (``names.py``), so that autograd runs and operators go CUDA's way. All that the compiler asks of
the card is answered from the virtual one, and the Python that it writes is played (``wrapper.py``).
"""

import atexit
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import torch

from memlab.patching import Change, behind, where
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.compiled import internals, origins
from memlab.vgpu.compiled.padding import TABLE as TIMED
from memlab.vgpu.compiled.padding import Padding
from memlab.vgpu.compiled.wrapper import played
from memlab.vgpu.composites import way_of
from memlab.vgpu.convolutions.formats import CORRECTIONS as FORMATS
from memlab.vgpu.current_prediction import Prediction
from memlab.vgpu.facade import properties
from memlab.vgpu.internals import FakeTensor, FakeTensorMode, make_wrapper, unset_fake_temporarily, with_device
from memlab.vgpu.mode import engine_device, on_the_card, prim_device
from memlab.vgpu.names import CARD, ENGINE, SLOT

Answer = Callable[..., Any]
_thread = threading.local()


def is_compiling() -> bool:
    """Return whether this thread compiles for the virtual card."""
    return getattr(_thread, "compiling", False)


@contextmanager
def for_the_card() -> Iterator[None]:
    """The context in which this thread does."""
    before, _thread.compiling, _thread.entering = is_compiling(), True, False
    try:
        yield
    finally:
        _thread.compiling = before


@contextmanager
def as_the_loop(seeing: AbstractContextManager[None]) -> Iterator[None]:
    """The context in which what is called while something is compiled runs as if the loop called it."""
    before, _thread.compiling = is_compiling(), False
    try:
        with seeing:
            yield
    finally:
        _thread.compiling = before


@contextmanager
def settings() -> Iterator[None]:
    """The compiler's settings: nothing is read from files of other runs or written for them, nor in other processes.

    What one prediction has compiled is there for the next of this process: PyTorch's caches decide what is the same.
    """
    with ExitStack() as stack:
        stack.enter_context(internals.dynamo_config.patch(automatic_dynamic_local_pgo=False))
        stack.enter_context(
            internals.functorch_config.patch(
                enable_autograd_cache=True,
                # Backward is compiled when forward is, and not at its first run: that would be outside of all this.
                force_non_lazy_backward_lowering=True,
                # A recomputed dropout's random state, as a tensor of the host and not as CUDA's generator.
                graphsafe_rng_functionalization=False,
            )
        )
        stack.enter_context(
            internals.inductor_config.patch(fx_graph_cache=True, fx_graph_remote_cache=False, compile_threads=1)
        )
        yield


def changes(prediction: Prediction, seeing: Callable[[], AbstractContextManager[None]]) -> Iterator[Change]:
    """Yield each change: where, its name, and what takes its place.

    Args:
        seeing: makes the context in which the prediction sees operators.
    """
    begun = internals.OptimizerVariable.call_method
    yield internals.OptimizerVariable, "call_method", _here(_beginning_state(begun, seeing), begun)
    for owner, name, answer in _of_the_card(prediction):
        yield owner, name, staticmethod(_here(lambda *_, answer=answer, **__: answer, getattr(owner, name)))
    for module in (internals.scheduler, internals.pad_mm):
        yield module, "has_triton", _here(lambda *_: True, vars(module)["has_triton"])
    padding = Padding(prediction.card.speed)
    for owner, name, answer in padding.changes():
        yield owner, name, _here(answer, getattr(owner, name))
    owner, name = internals.capturing
    yield owner, name, _here(lambda: False, getattr(owner, name))
    for owner, name in internals.asked_once:
        yield owner, name, _asked_again(vars(owner)[name])
    log = internals.inductor_utils.log  # which says what a card is too small for
    yield log, "filter", _here(lambda record: False, log.filter)
    yield internals.triton, "triton_hash_with_backend", _here(lambda *_: "", internals.triton.triton_hash_with_backend)

    yield FakeTensor, "__new__", staticmethod(_here(partial(_fake, FakeTensor.__new__), FakeTensor.__new__))
    dispatch = vars(FakeTensor)["__torch_dispatch__"].__func__
    yield FakeTensor, "__torch_dispatch__", classmethod(_here(partial(_dispatched, dispatch), dispatch))
    dispatch = FakeTensorMode.__torch_dispatch__
    yield FakeTensorMode, "__torch_dispatch__", _here(_mode_dispatched(dispatch), dispatch)
    yield FakeTensorMode, "avoid_device_init", _without_devices(FakeTensorMode.avoid_device_init)
    yield FakeTensorMode, "__enter__", _here(_entering(FakeTensorMode.__enter__), FakeTensorMode.__enter__)
    dispatch = internals.ProxyTorchDispatchMode.__torch_dispatch__
    yield internals.ProxyTorchDispatchMode, "__torch_dispatch__", _here(_proxied(dispatch), dispatch)
    wrapping = getattr(torch.Tensor, name := make_wrapper.__name__)
    yield torch.Tensor, name, staticmethod(_here(partial(_wrapped, wrapping), wrapping))
    for module in internals.modules_that_decompose:
        decomposes = vars(module)["autograd_would_have_decomposed"]
        yield module, "autograd_would_have_decomposed", _here(_decomposes(decomposes), decomposes)

    yield internals.InstructionTranslatorBase, "nn_modules_globals_vt", property(_without_our_hooks)
    look_up = internals.InliningInstructionTranslator._load_global
    yield internals.InliningInstructionTranslator, "_load_global", _here(_looking_up(look_up), look_up)
    seen = _Functions()
    wrap = internals.VariableBuilder._wrap
    yield internals.VariableBuilder, "_wrap", _here(lambda self, value: wrap(self, seen.real(value)), wrap)
    constant = internals.TorchInGraphFunctionVariable.as_python_constant
    called = _here(lambda self: seen.answering(constant(self)), constant)
    yield internals.TorchInGraphFunctionVariable, "as_python_constant", called
    aside = vars(internals.proxies)["unset_fake_temporarily"]
    yield internals.proxies, "unset_fake_temporarily", _here(_aside_on_the_host(aside), aside)
    for kind in (internals.ConstantFolder, internals.UniformValueConstantFolder):
        deduce = kind._deduce_value
        yield kind, "_deduce_value", _here(_on_the_host(deduce), deduce)
    is_applicable = internals.compile_fx.is_tf32_warning_applicable  # what follows from it is said without a prediction
    yield internals.compile_fx, "is_tf32_warning_applicable", _here(lambda graph: False, is_applicable)
    # What it would write for a report of a defect, it asks nvcc and the driver for.
    yield internals.reports, "save_graph_repro", _here(lambda *_, **__: None, internals.reports.save_graph_repro)
    aligned = vars(internals.graph)["should_assume_input_aligned"]
    yield internals.graph, "should_assume_input_aligned", _here(_aligned(aligned), aligned)
    codegen = internals.GraphLowering.codegen
    yield internals.GraphLowering, "codegen", _here(_with_tables(codegen, padding), codegen)
    load = internals.PyCodeCache.load_by_key_path
    yield internals.PyCodeCache, "load_by_key_path", staticmethod(_here(partial(_played, prediction), load))
    for module in internals.modules_with_caches:
        yield module, "cache_dir", _here(_folder_of_this_process, module.cache_dir)


def _here(answer: Answer, real: Answer) -> Answer:
    """The answer in a thread that compiles for the card, else the real function."""
    return where(is_compiling, answer, real)


def _asked_again(known: Any) -> Any:
    """Return a replacement for a cached function about the card: it asks, and caches, this prediction's card alone."""
    asks = getattr(known, "__func__", known)  # of a method of a class
    asked = _here(cache(asks.__wrapped__), asks)
    return asked if asks is known else type(known)(asked)


def _of_the_card(prediction: Prediction) -> Iterator[tuple[Any, str, Any]]:
    """Yield the questions of the compiler to a card (``torch._dynamo.device_interface``), and its answers."""
    card, interface = properties(), internals.CudaInterface
    card.gcnArchName = ""  # AMD's
    answers = {
        "get_device_properties": card,
        "get_compute_capability": prediction.card.sm,
        "is_bf16_supported": prediction.card.bf16,
        "is_available": True,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
        "device_count": 1,
        "current_device": 0,
    }
    for name, answer in answers.items():
        yield interface, name, answer
    yield interface.Worker, "get_device_properties", card


# Fake tensors of the card


def _fake(new: Answer, cls: Any, mode: Any = None, elem: Any = None, device: Any = None, *rest: Any, **kw: Any) -> Any:
    if device is None or torch.device(device).type != CARD.type:
        return new(cls, mode, elem, device, *rest, **kw)
    fake = new(cls, mode, elem, SLOT, *rest, **kw)
    fake.__dict__.update(with_device(fake.__dict__, CARD))
    return fake


def _dispatched(dispatch: Answer, cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    out = dispatch(cls, func, types, args, kwargs or {})
    return ENGINE if func is prim_device and out == CARD else out


def _mode_dispatched(dispatch: Answer) -> Answer:
    def dispatched(self: FakeTensorMode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not prim_device:
            out = dispatch(self, func, types, args, on_the_card(kwargs or {}))
            return _formatted(self, func, args, kwargs, out) if id(func) in FORMATS else out
        tensor = args[0]
        while isinstance(tensor, internals.FunctionalTensor):
            tensor = internals.from_functional(tensor.elem)
        return torch.device("meta") if tensor.fake_mode.in_kernel_invocation else engine_device(tensor)

    return dispatched


def _formatted(mode: FakeTensorMode, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """A convolution's results in the memory format that the card gives them, which Inductor's layouts follow."""
    if out is NotImplemented or not all(_is_plain(tensor) for tensor in args if isinstance(tensor, torch.Tensor)):
        return out
    vars(mode).setdefault("attributes", {})  # for make_fake, as in a mode of our own
    with unset_fake_temporarily():
        return FORMATS[id(func)](mode, Arguments(func, args, kwargs), out)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether it is on the card, with sizes that are numbers."""
    whole = all(isinstance(size, int) for size in (*tensor.shape, *tensor.stride()))
    return whole and isinstance(tensor, FakeTensor) and tensor.fake_device == CARD


def _proxied(dispatch: Answer) -> Answer:
    def proxied(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(self, func, types, args, on_the_card(kwargs or {}))

    return proxied


def _wrapped(make: Answer, cls: type, *args: Any, **kwargs: Any) -> Any:
    """A tensor in AOTAutograd's wrapping has the keys of what it wraps, and is asked for its device."""
    if cls is internals.FunctionalTensor and args[_DEVICE] == CARD:
        args = (*args[:_DEVICE], SLOT, *args[_DEVICE + 1 : _ASKED], True, *args[_ASKED + 1 :])
        return make_wrapper(cls, *args, **kwargs)
    return make(cls, *args, **kwargs)


_DEVICE, _ASKED = 6, 10  # positions of device and dispatch_device in FunctionalTensor.__new__'s call


def _without_devices(real: Any) -> property:
    """No device is initialized, and a mode that is entered does not register one: see ``VirtualMode``."""
    return property(lambda self: not _thread.entering if is_compiling() else real.__get__(self))


def _entering(enter: Answer) -> Answer:
    def entered(self: FakeTensorMode) -> FakeTensorMode:
        _thread.entering = True
        try:
            return enter(self)
        finally:
            _thread.entering = False

    return entered


def _decomposes(real: Answer) -> Answer:
    """Return whether autograd takes an operator apart because the device has no kernel for it: CUDA has some."""

    def decomposes(func: Any, args: Sequence[Any]) -> bool:
        first = next((value for value in args if isinstance(value, torch.Tensor)), None)
        return way_of(func) is not None if first is not None and first.device == CARD else real(func, args)

    return decomposes


# What Dynamo sees


class _Functions:
    """PyTorch's own functions, by which Dynamo knows what to do, of those that answer for the card in their place."""

    def __init__(self) -> None:
        self._answering: dict[Any, Any] = {}

    def real(self, value: Any) -> Any:
        """The function of PyTorch's own, of one that was put in its place; anything else as it is."""
        real = behind(value)
        if real is not value:
            self._answering[real] = value
        return real

    def answering(self, real: Any) -> Any:
        """Return what is called where compiled code has the answer as a constant: ``torch.cuda.is_available()``."""
        return self._answering.get(real, real)


def _without_our_hooks(translator: Any) -> Any:
    """``torch.nn.modules.module`` as compiled code finds it, without the hooks that follow the modules at work."""
    seen = ModuleType(internals.modules.__name__)
    vars(seen).update(vars(internals.modules))
    for name, hooks in vars(internals.modules).items():
        if name.startswith("_global_") and isinstance(hooks, dict):
            others = {key: hook for key, hook in hooks.items() if not _is_ours(key)}
            vars(seen)[name] = type(hooks)(others)
    return internals.PythonModuleVariable(seen)


def _looking_up(look_up: Answer) -> Answer:
    """Dynamo inlines the call of a module whose instance has a ``forward`` of its own: its code asks for hooks."""

    def looked_up(self: Any, instruction: Any) -> None:
        name = instruction.argval
        if self.f_globals is vars(internals.modules) and name.startswith("_global_"):
            self.push(internals.attribute_of(self.nn_modules_globals_vt)(self, name))
        else:
            look_up(self, instruction)

    return looked_up


def _is_ours(key: int) -> bool:
    hooks = (internals.modules._global_forward_hooks, internals.modules._global_forward_pre_hooks)
    return any(getattr(found.get(key), "__module__", "").startswith("memlab.") for found in hooks)


def _beginning_state(call: Answer, seeing: Callable[[], AbstractContextManager[None]]) -> Answer:
    """While it traces a step, Dynamo has the optimizer itself make its state: on the card, as the loop would."""

    def called(self: Any, tx: Any, name: str, *rest: Any) -> Any:
        optimizer, make = self.value, getattr(self.value, "_init_group", None)
        if name != "_init_group" or make is None:
            return call(self, tx, name, *rest)

        def made(*args: Any, **kwargs: Any) -> Any:
            with as_the_loop(seeing()):
                return make(*args, **kwargs)

        optimizer._init_group = made
        try:
            return call(self, tx, name, *rest)
        finally:
            del optimizer._init_group

    return called


# What Inductor computes, and what it writes


class _OnTheHost(internals.TorchDispatchMode):
    """Constants of a graph are computed, on the card; their numbers are the same on the host."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(_host, args), **{name: _host(value) for name, value in (kwargs or {}).items()})


def _host(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _on_the_host(deduce: Answer) -> Answer:
    def deduced(self: Any, node: Any) -> Any:
        with _OnTheHost():
            return deduce(self, node)

    return deduced


def _aside_on_the_host(aside: Answer) -> Answer:
    @contextmanager
    def set_aside() -> Iterator[None]:
        with aside(), _OnTheHost():
            yield

    return set_aside


def _aligned(real: Answer) -> Answer:
    """Return whether an input's address is. A random state here is a generator on a card, which has none.

    What an operator gives whose inputs are not aligned counts as not aligned, too, and is not used again for others.
    """

    def aligned(example: torch.Tensor) -> bool:
        is_state = example.device.type == "cpu" and example.dtype == torch.uint8
        return is_state or bool(real(example))

    return aligned


def _with_tables(codegen: Answer, padding: Padding) -> Answer:
    def told(self: Any) -> Any:
        wrapper, *kernels = codegen(self)
        wrapper.value += origins.table(self) + padding.table()
        return wrapper, *kernels

    return told


def _played(
    prediction: Prediction, key: str, path: str, linemap: Any = None, attrs: Any = None, **options: Any
) -> ModuleType:
    if attrs is None:  # a template's kernel (FlexAttention), which only a clock on the card would run
        module = ModuleType("memlab_kernel")
        vars(module).update(__file__=path, key=key)
        return module
    text = Path(path).read_text(encoding="utf-8")
    if prediction.graphs is not None and "rng_state" in text:
        prediction.note(_GRAPHS_ARE_CUT)
    module = played(text, attrs, prediction.launch, prediction.work_for)
    prediction.see_timing(getattr(module, TIMED))
    return module


_GRAPHS_ARE_CUT = (
    "A checkpoint runs operators that may draw random numbers again. On a card their state is part of the CUDA graphs; "
    "here it is on the host, where the graphs are cut: bytes allocated are some KiB less, bytes reserved some MiB more."
)


@cache
def _folder_of_this_process() -> str:
    folder, maker = mkdtemp(prefix="memlab-compiled-"), os.getpid()

    def remove() -> None:
        if os.getpid() == maker:  # and no fork of it, which may end before
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
