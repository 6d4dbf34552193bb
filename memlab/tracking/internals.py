"""Every private name of PyTorch that the measured side uses: ``tracking/``, ``devices/`` and ``run.py``.

Checked on torch 2.11.0, 2.13.0 and 2.15.0. Beside each name stands what is lost where a PyTorch lacks it.
"""

import torch

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:  # nothing can be seen without it
    raise ImportError(
        f"torch {torch.__version__} has no torch.utils._python_dispatch.TorchDispatchMode, by which memlab sees every "
        "operator: install a torch from 2.11 to 2.15."
    ) from error

try:
    from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
except ImportError:
    # Lost: the worker processes of a DataLoader, forked within a step, are watched as if they were the step.
    _disable_current_modes = _get_current_dispatch_mode_stack = None

try:
    from torch._prims_common import is_non_overlapping_and_dense_or_false as is_dense
except ImportError:
    is_dense = None

__all__ = [
    "TorchDispatchMode",
    "clear_cublas_workspaces",
    "current_node",
    "exclude_dispatch_key",
    "is_dense",
    "modes_of_this_thread",
    "reference_counts",
    "set_modes_aside",
    "switch_dispatch_key",
]


def modes_of_this_thread() -> list[TorchDispatchMode]:
    """The dispatch modes that are on in this thread, the innermost last."""
    return _get_current_dispatch_mode_stack() if _get_current_dispatch_mode_stack else []


def set_modes_aside():
    """A context in which no dispatch mode is on."""
    return _disable_current_modes()


_current_node = getattr(torch._C, "_current_autograd_node", None)
_storage_count = getattr(torch._C, "_storage_Use_Count", None)


def current_node():
    """The node of autograd's graph whose backward is running; None if there is none.

    Lost without the name: the formulas that work in place on a node's own first result do not.
    """
    return _current_node() if _current_node else None


def reference_counts(tensor: torch.Tensor) -> tuple[int, int] | None:
    """How often C++ refers to a tensor and to its storage.

    None where PyTorch does not tell: then gradients are accumulated out of place, and an X-rayed step can peak higher
    than a plain one.
    """
    if _storage_count is None or is_dense is None:
        return None
    return tensor._use_count(), _storage_count(tensor.untyped_storage()._cdata)


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


def exclude_dispatch_key(name: str, on: bool) -> None:
    """Lead this thread's operators round a dispatch key although it is switched on, or no longer."""
    if switch := getattr(torch._C, "_dispatch_tls_set_dispatch_key_excluded", None):
        switch(name, on)
