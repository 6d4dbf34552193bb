"""Every private name of PyTorch that the measured side uses: ``tracking/``, ``devices/`` and ``run.py``.

Checked on torch 2.11.0, 2.13.0 and 2.15.0. Beside each name stands what is lost where a PyTorch lacks it.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, FrameType
from typing import Any
from weakref import WeakValueDictionary

import torch

from memlab.versions import CHECKED

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:  # nothing can be seen without it
    raise ImportError(
        f"torch {torch.__version__} has no torch.utils._python_dispatch.TorchDispatchMode, by which memlab sees every "
        f"operator: install a torch that memlab was checked with, {CHECKED}."
    ) from error

try:
    from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
except ImportError:
    # Lost: the names of modules at work, and the worker processes of a DataLoader, forked within a step, are watched.
    def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
        return []


try:
    from torch._prims_common import is_non_overlapping_and_dense_or_false as _is_dense

    is_dense: Any = _is_dense
except ImportError:
    is_dense = None

try:
    from torch._ops import HigherOrderOperator as _HigherOrderOperator

    _higher_order: Any = _HigherOrderOperator
except ImportError:
    _higher_order = ()

try:
    from torch._library.custom_ops import OPDEFS as _definitions
except ImportError:
    _definitions = WeakValueDictionary()

try:
    from torch.autograd.graph import _engine_run_backward

    _engine: CodeType | None = _engine_run_backward.__code__
except ImportError:
    _engine = None

__all__ = [
    "COMPILER",
    "STANCE",
    "TorchDispatchMode",
    "called_by_engine",
    "clear_cublas_workspaces",
    "compiler_frontend",
    "current_node",
    "custom_definition",
    "custom_kernel",
    "exclude_dispatch_key",
    "higher_order_kernel",
    "is_composite",
    "is_default_generator",
    "is_dense",
    "is_fake",
    "is_higher_order",
    "is_view",
    "keys_of_higher_order",
    "modes_above",
    "modes_of_this_thread",
    "next_node_number",
    "on_again",
    "ranks_of_group",
    "reference_counts",
    "set_modes_aside",
    "sharding_propagator",
    "size_of_group",
    "sparse_parts",
    "switch_dispatch_key",
    "unwrapped",
]


def modes_of_this_thread() -> list[TorchDispatchMode]:
    """The dispatch modes that are on in this thread, the innermost last."""
    return _get_current_dispatch_mode_stack()


@contextmanager
def modes_above(mode: TorchDispatchMode | None) -> Iterator[None]:
    """A context without the modes that were entered after this one (None: without any), which are on again behind it.

    PyTorch's own are left where they are: they stand below all others.
    """
    modes = modes_of_this_thread()
    first = next((index + 1 for index, other in enumerate(modes) if other is mode), 0 if mode is None else len(modes))
    above = [other for other in modes[first:] if getattr(other, "_mode_key", None) is None]
    for other in reversed(above):
        TorchDispatchMode.__exit__(other, None, None, None)
    try:
        yield
    finally:
        for other in above:
            TorchDispatchMode.__enter__(other)


def set_modes_aside() -> AbstractContextManager[Any]:
    """A context in which no dispatch mode is on."""
    return _disable_current_modes()


_current_node = getattr(torch._C, "_current_autograd_node", None)
# How autograd numbers what a thread makes. Lost: a differentiated backward pass is taken for one that one thread runs.
next_node_number = getattr(torch._C._autograd, "_get_sequence_nr", int)
_storage_count = getattr(torch._C, "_storage_Use_Count", None)


def current_node() -> Any:
    """The node of autograd's graph whose backward is running; None if there is none.

    Lost without the name: the formulas that work in place on a node's own first result do not.
    """
    return _current_node() if _current_node else None


def called_by_engine() -> bool:
    """Return True if autograd's engine, or one of its formulas, calls the operator that a dispatch mode sees now.

    It does where no Python stands between: the mode was called by the function that started backward or, in a thread
    of autograd's own, by none. The reader's hooks and ``torch.autograd.Function`` are Python.

    Lost without the name: see :func:`reference_counts`, and double backward looks like recomputation.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "__torch_dispatch__":
        frame = frame.f_back
    caller = frame and frame.f_back
    return caller is None or caller.f_code is _engine


def reference_counts(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the C++ reference counts of a tensor and of its storage.

    None where PyTorch does not tell: then gradients are accumulated out of place, and an X-rayed step can peak higher
    than a plain one.
    """
    if _storage_count is None or is_dense is None:
        return None
    count = tensor._use_count()  # type: ignore[attr-defined]  # PyTorch's stubs lack it
    return count, _storage_count(tensor.untyped_storage()._cdata)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that ``torch.func`` has wrapped, through all its levels; any other tensor as it is.

    Lost without the names: parameters inside of ``torch.func`` are not known as such.
    """
    functorch = getattr(torch._C, "_functorch", None)
    while functorch is not None and functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def clear_cublas_workspaces() -> None:
    """Give back what cuBLAS keeps for each thread. Lost without the name: the next run starts with it."""
    if clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None):
        clear()


def switch_dispatch_key(name: str, on: bool) -> None:
    """Lead this thread's operators past the kernels of a dispatch key, or no longer.

    Lost without the name: runs draw from the process's random numbers.
    """
    if switch := getattr(torch._C, "_dispatch_tls_set_dispatch_key_included", None):
        switch(name, on)


def is_default_generator(generator: torch.Generator | None) -> bool:
    """Return True for the generator of the process, or for None, which means the same."""
    if generator is None:
        return True
    return getattr(generator, "_cdata", None) == torch.default_generator._cdata  # type: ignore[attr-defined]


def exclude_dispatch_key(name: str, on: bool) -> None:
    """Lead this thread's operators round a dispatch key although it is switched on, or no longer."""
    if switch := getattr(torch._C, "_dispatch_tls_set_dispatch_key_excluded", None):
        switch(name, on)


def is_composite(func: Any) -> bool:
    """Return True if an operator is composed of others and has no kernel of its own.

    A mode sees it whole where autograd has not taken it apart: in ``torch.inference_mode`` and below tensor subclasses.
    Lost without the name: what it does inside.
    """
    if not hasattr(func, "has_kernel_for_dispatch_key"):
        return False
    names = ("CompositeImplicitAutograd", "CPU", "CUDA")
    keys = (getattr(torch._C.DispatchKey, name, None) for name in names)
    composite, *own = (key is not None and func.has_kernel_for_dispatch_key(key) for key in keys)
    return composite and not any(own)  # silu_backward has all three


def is_fake(kind: type) -> bool:
    """Return True if tensors of this type have shapes and no numbers, like those that the compiler and DTensor make."""
    return kind.__module__.startswith("torch._subclasses.")


def is_view(func: Any) -> bool:
    """Return True if all results of an operator are views of its arguments. Lost without the name: a little time."""
    returns = func._schema.returns if hasattr(func, "_schema") else ()
    return bool(returns) and all(value.alias_info and not value.alias_info.is_write for value in returns)


def is_higher_order(func: Any) -> bool:
    """Return True if an operator takes operators as arguments.

    Lost without the name: a DTensor that draws, or flex attention, fails in an X-rayed step, in PyTorch's words.
    """
    return isinstance(func, _higher_order)


def keys_of_higher_order(without: str) -> tuple[Any, str, Any] | None:
    """Return the module and the name of the function that computes the dispatch keys of a higher-order operator's call,
    and a replacement that leaves out the key ``without``; None where PyTorch lacks the names.

    Such operators know nothing of fallthrough kernels. Lost without the names: in a run they fail, in PyTorch's words.
    """
    operators, name = getattr(torch, "_ops", None), "_compute_keyset"
    compute, parse = getattr(operators, name, None), getattr(torch._C, "_dispatch_key_parse", None)
    if compute is None or parse is None:
        return None
    key = parse(without)
    return operators, name, lambda args, kwargs, keys: compute(args, kwargs, keys.remove(key))


def higher_order_kernel(func: Any, device: str) -> Any:
    """Return the Python kernel of a higher-order operator on a kind of device, made of ordinary ones, or None."""
    keys = (getattr(torch._C.DispatchKey, name) for name in (device.upper(), "CompositeExplicitAutograd"))
    return next((func.py_kernels[key] for key in keys if key in func.py_kernels), None)


def custom_definition(func: Any) -> Any:
    """Return what ``torch.library.custom_op`` has made of a Python function, for its operator; None for any other.

    Lost without the name: what such a function allocates beside its results, and its arithmetic.
    """
    return _definitions.get(func.name()) if isinstance(func, torch._ops.OpOverload) else None


def custom_kernel(definition: Any, device: str) -> Any:
    """The Python function that a custom operator runs on a kind of device, or None."""
    kernels = getattr(definition, "_backend_fns", {})
    return kernels.get(device, kernels.get(None))


@contextmanager
def on_again(mode: TorchDispatchMode) -> Iterator[None]:
    """A context in which a mode that handles an operator sees operators itself."""
    TorchDispatchMode.__enter__(mode)
    try:
        yield
    finally:
        TorchDispatchMode.__exit__(mode, None, None, None)


COMPILER = "torch._dynamo"  # the module, for whom wants to know whether something may have been compiled yet
# Its function that says what a call of something compiled runs; torch.compiler.set_stance is for all threads.
# Lost without the name: what is compiled runs compiled, and its tensors are not seen.
STANCE = "_callback_from_stance"


def compiler_frontend() -> Any:
    """The module of PyTorch's compiler that its calls go through; None where nothing has imported it."""
    return sys.modules.get(f"{COMPILER}.eval_frame")


def sharding_propagator() -> Any:
    """Return the class that works out the shapes of DTensors; None where they are not in use.

    Lost without the name: operators that DTensor runs on whole shapes, to find a result's, are taken for work.
    """
    module = sys.modules.get("torch.distributed.tensor._sharding_prop")
    return getattr(module, "ShardingPropagator", None)


def makers_of_buckets() -> Iterator[tuple[Any, str]]:
    """Yield what makes the buckets of DistributedDataParallel, as the names of methods with their classes.

    Lost without the names: where memory runs out before a bucket is sent, buckets are taken for inputs or activations.
    """
    reducer = getattr(torch.distributed, "Reducer", None)
    for owner, name in ((torch.nn.parallel.DistributedDataParallel, "_ddp_init_helper"), (reducer, "_rebuild_buckets")):
        if hasattr(owner, name):
            yield owner, name


def size_of_group(group: Any) -> int:
    """Return the number of ranks in a collective, by its process group: the name of one, or the object in C++.

    Lost without the names: bytes sent to other ranks are not counted, in words.
    """
    return int(_process_group(group).size())


def rank_in_group(group: Any) -> int:
    """Return the number of this rank among those that take part in a collective, by its process group.

    Lost without the names: as of :func:`size_of_group`.
    """
    return int(_process_group(group).rank())


def ranks_of_group(group: Any) -> list[int]:
    """Return the ranks that take part in a collective, by their numbers among all.

    Lost without the names: as of :func:`size_of_group`.
    """
    return torch.distributed.get_process_group_ranks(_process_group(group))


def _process_group(group: Any) -> Any:
    if isinstance(group, str):
        distributed_c10d: Any = torch.distributed.distributed_c10d
        return distributed_c10d._resolve_process_group(group)
    if not isinstance(group, torch.distributed.ProcessGroup):
        return torch.distributed.ProcessGroup.unbox(group)
    return group


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values of a sparse tensor in coordinates, be they sorted or not."""
    return tensor._indices(), tensor._values()
