"""The virtual GPU put together: PyTorch's private-use slot, with kernels of our own where CUDA goes its own way."""

import threading
import types

import torch

from memlab.errors import NoVirtualGpu
from memlab.vgpu import autocast, composites
from memlab.vgpu.internals import (
    PrivateUse1Hooks,
    load_compiler,
    private_use_name,
    register_device_module,
    register_python_privateuseone_hook,
)
from memlab.vgpu.names import SLOT_NAME

_lock = threading.Lock()
_registered: list[object] = []  # PyTorch keeps no reference to what is registered with it


def register() -> None:
    """Make the slot known to PyTorch, once in a process, whichever thread is first.

    Raises:
        NoVirtualGpu: another backend has taken the private-use slot, or this PyTorch lacks something.
    """
    with _lock:
        if _registered:
            return
        load_compiler()  # before any function of PyTorch's has another in its place
        taken = private_use_name()
        if taken != SLOT_NAME:
            raise NoVirtualGpu(
                f"The virtual GPU needs PyTorch's private-use device, and the backend {taken!r} has taken it: "
                "predict in a process that does not load that backend. measure still works."
            )
        kernels = [*autocast.kernels(), *composites.kernels()]  # first, because they may be refused
        hook = _hook()
        register_python_privateuseone_hook(hook)
        register_device_module(SLOT_NAME, _Module(f"torch.{SLOT_NAME}"))
        _registered.extend([hook, *kernels])


def _hook() -> PrivateUse1Hooks:
    class Hook(PrivateUse1Hooks):
        def is_available(self) -> bool:
            return True

        def is_built(self) -> bool:
            return True

        def has_primary_context(self, index: int) -> bool:
            return True

    return Hook()


class _Module(types.ModuleType):
    """The slot's own module, as ``torch.cuda`` is CUDA's: what PyTorch itself asks of it."""

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

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]
