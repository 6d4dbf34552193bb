"""Every private name of PyTorch that the virtual GPU leans on comes through this file.

Checked on torch 2.11.0, 2.13.0 and 2.15.0. Where one is missing, importing this file raises ``NoVirtualGpu``, and
``measure`` still works: nothing outside this folder needs these names. What the tracker needs is in
``memlab/tracking/internals.py``.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from memlab.errors import NoVirtualGpu, Unpredictable
from memlab.versions import CHECKED
from memlab.vgpu.versions import TORCH

try:
    from torch._C import (
        DispatchKey,
        DispatchKeySet,
        _ExcludeDispatchKeyGuard,
        _get_privateuse1_backend_name,
        _only_lift_cpu_tensors,
        _set_dispatch_mode,
        _set_only_lift_cpu_tensors,
        _set_warn_deprecated_on_mutable_data_ptr,
        _swap_tensor_impl,
        _TorchDispatchModeKey,
        _unset_dispatch_mode,
    )
    from torch._C._acc import PrivateUse1Hooks, register_python_privateuseone_hook
    from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensor,
        FakeTensorMode,
        UnsupportedFakeTensorException,
        UnsupportedOperatorException,
        unset_fake_temporarily,
    )
    from torch.optim import optimizer as _optimizer
    from torch.utils import _foreach_utils
    from torch.utils._device import _device_constructors
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

    foreach_types = (_optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
    AUTOCAST_KEY = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]  # PyTorch's stubs lack it
    COMPOSITE_KEY = DispatchKey.CompositeImplicitAutograd
    FAKE_MODE = _TorchDispatchModeKey.FAKE
    kinds_of_operators = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    make_subclass = torch.Tensor._make_subclass
    make_wrapper = torch.Tensor._make_wrapper_subclass
    jit_builtins: Any = torch.jit._builtins
    register_device_module: Any = torch._register_device_module
    torch_c: Any = torch._C
    data_loader_iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    data_parallel: Any = torch.nn.parallel._functions
    sync_batch_norm: Any = torch.nn.modules._functions.SyncBatchNorm
    device_constructors = _device_constructors
except (ImportError, AttributeError) as error:
    raise NoVirtualGpu(
        f"torch {torch.__version__} lacks what the virtual GPU needs ({error}): "
        f"install a torch that memlab was checked with, {CHECKED}. measure still works."
    ) from None

# PyTorch's switches in torch_c: those of torch.nn.attention.sdpa_kernel by what reads each and what sets it, others by
# their names behind _get_ and _set_. Lost without one: the loop's own setting of it, or that it is put back.
ATTENTION_SWITCHES = {
    **{f"_get_{name}_sdp_enabled": f"_set_sdp_use_{name}" for name in ("flash", "mem_efficient", "math", "cudnn")},
    "_get_overrideable_sdp_enabled": "_set_sdp_use_overrideable",
    "_get_sdp_priority_order": "_set_sdp_priority_order",
    "_get_math_sdp_allow_fp16_bf16_reduction": "_set_math_sdp_allow_fp16_bf16_reduction",
}
SWITCHES = (
    "cublas_allow_bf16_reduced_precision_reduction",
    "cublas_allow_fp16_accumulation",
    "cublas_allow_fp16_reduced_precision_reduction",
    "cublas_allow_tf32",
    "cudnn_allow_tf32",
    "cudnn_benchmark",
    "cudnn_deterministic",
    "cudnn_enabled",
    "float32_matmul_precision",
)

below_autograd = torch_c._AutoDispatchBelowAutograd
transforms_functions = torch_c._are_functorch_transforms_active
allow_data_pointer = _set_warn_deprecated_on_mutable_data_ptr
disable_modes = _disable_current_modes
is_wrapped = is_functorch_wrapped_tensor
lifts_on_the_host = _only_lift_cpu_tensors
lift_on_the_host = _set_only_lift_cpu_tensors
private_use_name = _get_privateuse1_backend_name
set_mode = _set_dispatch_mode
swap_tensor_impl = _swap_tensor_impl
unset_mode = _unset_dispatch_mode
unwrapped = get_unwrapped

__all__ = [
    "ATTENTION_SWITCHES",
    "AUTOCAST_KEY",
    "COMPOSITE_KEY",
    "FAKE_MODE",
    "SWITCHES",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "PrivateUse1Hooks",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "allow_data_pointer",
    "attention_order",
    "below_autograd",
    "by_own_formula",
    "compilers_tables",
    "data_loader_iterator",
    "data_parallel",
    "device_constructors",
    "disable_modes",
    "fake_store",
    "finished_work",
    "foreach_types",
    "forget_meshes",
    "is_wrapped",
    "jit_builtins",
    "kinds_of_operators",
    "lift_on_the_host",
    "lifts_on_the_host",
    "load_compiler",
    "make_subclass",
    "make_wrapper",
    "node_number",
    "private_use_name",
    "register_device_module",
    "register_python_privateuseone_hook",
    "set_mode",
    "set_node_number",
    "swap_tensor_impl",
    "torch_c",
    "transforms_functions",
    "tree_flatten",
    "tree_leaves",
    "tree_map",
    "tree_unflatten",
    "unset_fake_temporarily",
    "unset_mode",
    "unwrapped",
    "with_device",
    "without_autocast",
]


def load_compiler() -> None:
    """Import PyTorch's compiler, as any optimizer does: its tables of PyTorch's functions shall hold PyTorch's own."""
    importlib.import_module("torch._dynamo")
    functions = importlib.import_module("torch._dynamo.variables.torch")
    functions.TorchInGraphFunctionVariable._get_handlers()  # made once in a process
    functions.get_overridable_functions()


def compilers_tables() -> tuple[Any, tuple[str, ...]]:
    """Return where PyTorch's compiler has tables of PyTorch's functions, and the names of those that give one each.

    They make it when it is asked for the first time, and anew after a process group has been made.
    """
    return importlib.import_module("torch._dynamo.trace_rules"), ("get_torch_obj_rule_map", "get_tensor_method")


def attention_order() -> list[int]:
    """The numbers of ``torch.nn.attention.SDPBackend``, in the order in which attention tries them."""
    return getattr(torch_c, "_get_sdp_priority_order", lambda: [1, 2, 0, 3])()


def node_number(node: Any) -> int:
    """The number of a node of autograd's graph, by which backward chooses among those that are ready."""
    return int(node._sequence_nr())


def set_node_number(node: Any, number: int) -> None:
    """Give a node another number."""
    node._set_sequence_nr(number)


def fake_store() -> Any:
    """Return a store for a process group where no other rank will ask it; make the backend ``fake`` known.

    Raises:
        NoVirtualGpu: this PyTorch has no such backend.
    """
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # here: few predictions have ranks
    except ImportError as error:
        raise NoVirtualGpu(
            f"torch {torch.__version__} has no fake process group: predict without world_size."
        ) from error
    return FakeStore()


def forget_meshes() -> None:
    """Empty what DTensor remembers by meshes that look alike: it has the names of the process groups of one rank.

    Lost without the names: a prediction of another rank in the same process fails, in words.
    """
    from torch.distributed.tensor import _collective_utils, _redistribute, debug

    getattr(debug, "_clear_sharding_prop_cache", lambda: None)()
    topology = getattr(_collective_utils, "MeshTopoInfo", None)
    for cached in (getattr(topology, "build_from_mesh", None), getattr(_redistribute, "_gen_transform_infos", None)):
        getattr(cached, "cache_clear", lambda: None)()


def finished_work(results: list[torch.Tensor]) -> Any:
    """A collective's work that is done, as operators give it."""
    from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]  # not in the stubs

    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result(results)
    return _create_work_from_future(future).boxed()


def plans_of_all_ranks() -> Iterator[tuple[Any, str]]:
    """The function that looks if all pieces of a distributed checkpoint are there. Lost without it: saving one."""
    planner: Any = importlib.import_module("torch.distributed.checkpoint.default_planner")
    if hasattr(planner, "_validate_global_plan"):
        yield planner, "_validate_global_plan"


def stages_that_ask_nobody(refusal: str) -> Iterator[tuple[type, str, Any]]:
    """Of a pipeline's stage: methods that ask the neighbours, and what is to be in their place.

    Lost without the names: a pipeline cannot be predicted.
    """
    from torch.distributed.pipelining import PipelineStage

    def infer(stage: Any, *args: Any, **kwargs: Any) -> None:
        raise Unpredictable(refusal)

    def vote(stage: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """All know their shapes, as this one does."""
        if not stage._user_meta.is_complete_for_forward():
            infer(stage)
        return torch.ones(1, dtype=torch.int32)

    def result(stage: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.ones(1, dtype=torch.int32)

    # The first of torch 2.11, the others of later ones.
    instead = {"_shape_inference": infer, "_warmup_forward_vote": vote, "_warmup_backward_result": result}
    for name, method in instead.items():
        if hasattr(PipelineStage, name):
            yield PipelineStage, name, method
    if TORCH >= (2, 15):  # a schedule decides for all its stages, and its refusal has no remedy for a prediction
        from torch.distributed.pipelining._utils import InferenceMode

        decide = InferenceMode.needs_dynamic

        def needs_dynamic(meta: Any, has_backward: bool) -> bool:
            if not meta.is_complete_for_forward():
                raise Unpredictable(refusal)
            return decide(meta, has_backward)

        yield InferenceMode, "needs_dynamic", needs_dynamic


def without_autocast() -> _ExcludeDispatchKeyGuard:
    """A context in which operators do not pass through the slot's autocast."""
    return _ExcludeDispatchKeyGuard(_autocast)


def with_device(attributes: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """A fake tensor's attributes, as those of one on another device."""
    name = "_fake_device" if "_fake_device" in attributes else "fake_device"  # torch 2.13 made it a property
    return {**attributes, name: device}


def by_own_formula(keys: Any, operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The operator with PyTorch's own derivative, as for a tensor on the host. ``keys``: those it was called with."""
    keys = keys.from_raw_repr(keys.raw_repr() & ~_bit_of("PrivateUse1") | _bit_of("CPU"))
    return operator.redispatch(keys, *args, **kwargs)


def _bit_of(backend: str) -> int:
    """Return the bits that all dispatch keys of a backend have in common."""
    dense, autograd = (torch_c.DispatchKeySet(getattr(DispatchKey, key + backend)) for key in ("", "Autograd"))
    return int(dense.raw_repr() & autograd.raw_repr())


def storage_id(storage: torch.UntypedStorage) -> int:
    """A number that is the same for every Python object of one storage."""
    return storage._cdata


def run_composite(operator: torch._ops.OpOverload, *args: object) -> torch.Tensor:
    """PyTorch's own way of taking the operator apart."""
    return operator._op_dk(COMPOSITE_KEY, *args)


_autocast = DispatchKeySet(AUTOCAST_KEY)


def look_for_triton() -> None:
    """Let PyTorch find out for good whether there is a Triton; its compiler looks where it is imported."""
    import torch._inductor.runtime.triton_compat  # noqa: F401  # takes seconds
    from torch._inductor.utils import get_triton_attrs_descriptor_version
    from torch.utils._triton import has_triton_package

    has_triton_package()
    get_triton_attrs_descriptor_version()
