"""Every private name of PyTorch's compiler that predictions of compiled code lean on comes through this file.

It takes seconds to import, so it is imported where something compiled is called. Checked on torch 2.11.0, 2.13.0 and
2.15.0.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from types import CodeType
from typing import Any

import torch
from torch._C._dynamo.eval_frame import _FrameAction as FrameAction
from torch._C._dynamo.eval_frame import _FrameExecStrategy as FrameExecStrategy
from torch._dynamo import config as dynamo_config
from torch._dynamo import convert_frame, eval_frame, pgo
from torch._dynamo.device_interface import CudaInterface
from torch._dynamo.exc import BackendCompilerFailed, InternalTorchDynamoError, Unsupported
from torch._dynamo.guards import DeletedGuardManagerWrapper
from torch._dynamo.hooks import Hooks
from torch._dynamo.repro import after_aot as reports
from torch._dynamo.symbolic_convert import InliningInstructionTranslator, InstructionTranslatorBase
from torch._dynamo.types import ConvertFrameReturn
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.misc import PythonModuleVariable
from torch._dynamo.variables.optimizer import OptimizerVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import codecache, compile_fx, cudagraph_trees, graph, scheduler
from torch._inductor import config as inductor_config
from torch._inductor import utils as inductor_utils
from torch._inductor.codecache import CacheBase, PyCodeCache
from torch._inductor.constant_folding import ConstantFolder
from torch._inductor.fx_passes import pad_mm
from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses import fake_tensor, functional_tensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental import proxy_tensor as proxies
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.nn.modules import module as modules
from torch.utils import _triton as triton
from torch.utils._python_dispatch import TorchDispatchMode

from memlab.vgpu.internals import FakeTensor, FakeTensorMode, allow_data_pointer

capturing_context: Any = torch.cuda.graphs.graph
capturing = torch.cuda.graphs, "_cuda_isCurrentStreamCapturing"  # which compiled code asks without Python between
expect_cached_tensors: Callable[[bool], None] = torch._C._set_cached_tensors_enabled
frame_lock = convert_frame.compile_lock  # held by whoever compiles a frame, in any thread
innermost_backend = eval_frame.innermost_backend
from_functional = torch._from_functional_tensor
modules_that_decompose = [
    module for module in (functional_tensor, proxies, fake_tensor) if hasattr(module, "autograd_would_have_decomposed")
]
InductorBackend = torch._TorchCompileInductorWrapper
storage_of: Callable[[int], torch.UntypedStorage] = torch.UntypedStorage._new_with_weak_ptr  # of a weak reference
modules_with_caches = (codecache, autograd_cache)
# What the compiler asks of a card once in a process, and remembers.
asked_once = ((DeviceProperties, "create"), (CacheBase, "get_system"), (inductor_utils, "is_big_gpu"))

__all__ = [
    "BackendCompilerFailed",
    "ConstantFolder",
    "ConvertFrameReturn",
    "CudaInterface",
    "FunctionalTensor",
    "GraphLowering",
    "InductorBackend",
    "InliningInstructionTranslator",
    "InstructionTranslatorBase",
    "InternalTorchDynamoError",
    "OptimizerVariable",
    "ProxyTorchDispatchMode",
    "PyCodeCache",
    "PythonModuleVariable",
    "TorchDispatchMode",
    "TorchInGraphFunctionVariable",
    "UniformValueConstantFolder",
    "Unsupported",
    "V",
    "VariableBuilder",
    "asked_once",
    "attribute_of",
    "capturing",
    "capturing_context",
    "compile_fx",
    "compiler_for",
    "compiler_of_whole_graphs",
    "cudagraph_trees",
    "dynamo_config",
    "expect_cached_tensors",
    "forget",
    "frame_lock",
    "from_functional",
    "functorch_config",
    "graph",
    "inductor_config",
    "inductor_setting",
    "inductor_utils",
    "innermost_backend",
    "modules",
    "modules_that_decompose",
    "modules_with_caches",
    "pad_mm",
    "pgo",
    "proxies",
    "reports",
    "scheduler",
    "skipped",
    "storage_of",
    "triton",
]


def attribute_of(variable: Any) -> Callable[[Any, str], Any]:
    """Return Dynamo's function that gives an attribute of a variable, by its translator and the name."""
    return getattr(variable, "tp_getattro_impl", None) or variable.var_getattr  # since torch 2.14 or 2.15, and before


def compiler_for(backend: Any) -> Any:
    """Return what Dynamo is to call for a frame that is compiled with this backend."""
    return eval_frame._create_wrapped_callback(backend)


def compiler_of_whole_graphs(backend: Any) -> Any:
    """Return the same with ``fullgraph=True``: where the graph breaks, it raises :class:`Unsupported`."""
    return convert_frame.catch_errors_wrapper(convert_frame.convert_frame_assert(backend), Hooks())


def wants_whole_graphs(compiler: Any) -> bool:
    """Return whether Dynamo was given this compiler for ``fullgraph=True``."""
    while compiler is not None and not isinstance(compiler, convert_frame.ConvertFrameAssert):
        compiler = getattr(compiler, "_torchdynamo_orig_backend", None)
    return compiler is not None


def inductor_setting(name: str) -> Any:
    """A setting of ``torch._inductor.config``, as in ``"triton.cudagraphs"``."""
    return reduce(getattr, name.split("."), inductor_config)


def skipped() -> ConvertFrameReturn:
    """The answer for a frame that runs as it was written, with all that it calls."""
    return ConvertFrameReturn(frame_exec_strategy=FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


def forget(code: CodeType, backends: Sequence[Any]) -> None:
    """Let go of all that was compiled of this code with one of these backends."""
    entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code)
    ours = [entry for entry in entries if any(entry.backend is backend for backend in backends)]
    if len(ours) == len(entries):
        return torch._C._dynamo.eval_frame.reset_code(code)  # also of what it decided to leave as it was written
    for entry in ours:
        guards: Any = entry.guard_manager
        guards.extra_state.invalidate(entry, DeletedGuardManagerWrapper("its prediction is over"))
    return None


def _warn_of_addresses() -> None:
    """Have C++ say now, to nobody, what it says once in a process where it compares addresses of fake tensors."""
    with warnings.catch_warnings(action="ignore"), FakeTensorMode() as mode:
        fake = FakeTensor(mode, torch.empty(0, device="meta"), torch.device("cpu"))
        allow_data_pointer(fake)
        torch._C.TensorBase.data_ptr(fake)


_warn_of_addresses()
