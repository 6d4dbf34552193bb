"""The device behind the virtual GPU: PyTorch's private-use slot, under its own name and with no kernels.

Every private name of PyTorch that the virtual GPU leans on is used in this file or listed here. Checked on torch
2.11.0, 2.13.0 and 2.15.0:

- here: ``torch._C._acc.PrivateUse1Hooks``, ``torch._C._acc.register_python_privateuseone_hook``,
  ``torch._C._get_privateuse1_backend_name``, ``torch._register_device_module``
- ``patches.py``: ``torch.optim.optimizer._foreach_supported_types``, ``torch._C._swap_tensor_impl``
- ``mode.py``: ``torch._subclasses.fake_tensor`` (``FakeTensor``, ``FakeTensorMode``, ``unset_fake_temporarily``),
  ``torch._C._unset_dispatch_mode``, ``torch._C._set_dispatch_mode``
- ``results.py``: ``Tensor._make_subclass``, ``torch._C._set_throw_on_mutable_data_ptr``
- ``loading.py``: ``torch.utils._python_dispatch._disable_current_modes``, ``UntypedStorage._cdata``
- ``autocast.py``, ``composites.py``: ``torch._C._ExcludeDispatchKeyGuard``, the dispatch keys ``AutocastPrivateUse1``
  and ``AutogradPrivateUse1``, ``OpOverload._op_dk``, ``torch._C._get_sdp_priority_order``
- ``inplace.py``: ``torch._C._storage_Use_Count``, ``Tensor._use_count``, ``torch._C._current_autograd_node``

The slot keeps its name "privateuseone" and gets no device guard. Both are on purpose: once the slot has been
renamed, PyTorch takes it for *the* accelerator of the process, and backward on a real CUDA card then fails
(pytorch/pytorch#161129). See ``VirtualMode`` for what this asks of it.
"""

import types

import torch

from memlab.errors import NoVirtualGpu

NAME = "privateuseone"
DEVICE = torch.device(NAME, 0)

_registered: list[object] = []  # PyTorch keeps no reference to what is registered with it


def register() -> None:
    """Make the device known to PyTorch, once in a process.

    Raises:
        NoVirtualGpu: PyTorch lacks what this needs, or another backend has taken the private-use slot.
    """
    if _registered:
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken != NAME or hasattr(torch, NAME):
        raise NoVirtualGpu(
            f"The virtual GPU needs PyTorch's private-use device, and the backend {taken!r} has taken it: "
            "predict in a process that does not load that backend. measure still works."
        )
    try:
        hook = _hook()
        torch._C._acc.register_python_privateuseone_hook(hook)
    except AttributeError as error:
        raise NoVirtualGpu(
            f"torch {torch.__version__} lacks what the virtual GPU needs ({error}): "
            "install torch 2.11 or newer. measure still works."
        ) from None
    torch._register_device_module(NAME, _DeviceModule(f"torch.{NAME}"))
    from memlab.vgpu import autocast, composites, patches

    _registered.extend([hook, *autocast.register(), *composites.register()])
    patches.apply()


def _hook() -> object:
    class Hook(torch._C._acc.PrivateUse1Hooks):
        def is_available(self) -> bool:
            return True

        def is_built(self) -> bool:
            return True

        def has_primary_context(self, index: int) -> bool:
            return True

    return Hook()


class _OnDevice:
    """What ``torch.cuda.device`` and ``torch.cuda.stream`` are: a context in which nothing changes here."""

    def __init__(self, *args):
        pass

    def __enter__(self) -> "_OnDevice":
        return self

    def __exit__(self, *exception) -> None:
        pass


class _DeviceModule(types.ModuleType):
    """The device's own module, as ``torch.cuda`` is CUDA's: what PyTorch and training loops ask of it."""

    _initialized = True  # checkpointing keeps a device's random state only if the device is
    device = _OnDevice
    stream = _OnDevice

    def is_available(self) -> bool:
        # False to code that looks for an accelerator to train on: the virtual GPU computes nothing.
        return False

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: object) -> None:
        pass

    def synchronize(self, device: object = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        pass

    manual_seed_all = manual_seed

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)  # the size of a CUDA generator's state

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]
