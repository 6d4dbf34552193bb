"""Fourier transforms of float16, which CUDA has: PyTorch refuses them to other devices (``promote_type_fft``).

It looks at real tensors only, and takes complex ones of any width. So a real one is made complex where CUDA does
that too (``fft_c2c_maybe_out``, ``fft_c2r_maybe_out`` in ``native/SpectralOps.cpp``), else transformed at once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from memlab.vgpu.internals import run_composite

aten = torch.ops.aten
BY_ROOT, BY_COUNT = 1, 2  # of fft_norm_mode


def _made_complex(operator: Any, tensor: Tensor, *args: Any) -> Tensor:
    return run_composite(operator, tensor.to(torch.complex32) if tensor.dtype is torch.float16 else tensor, *args)


def _from_real(operator: Any, forward: bool, one_sided: bool, tensor: Tensor, *args: Any) -> Tensor:
    if tensor.dtype is not torch.float16:
        return run_composite(operator, tensor, *args)
    defaults = [argument.default_value for argument in operator._schema.arguments[1:]]
    size, dim, norm = (*args, *defaults[len(args) :])
    dims = _dims(tensor, size, dim)
    for one, count in zip(dims, _sizes(size), strict=False):
        tensor = _resized(tensor, one, count)
    by_count = norm == "forward" if forward else norm in (None, "backward")
    out: Tensor = aten._fft_r2c(tensor, dims, BY_ROOT if norm == "ortho" else BY_COUNT * by_count, one_sided)
    return out if forward else out.conj()


def _dims(tensor: Tensor, size: Any, dim: Any) -> list[int]:
    """The dimensions that are transformed (``canonicalize_fft_shape_and_dim_args``)."""
    if dim is None:
        dim = range(-len(size or tensor.shape), 0)
    return [one % tensor.dim() for one in ([dim] if isinstance(dim, int) else dim)]


def _sizes(size: Any) -> Sequence[int]:
    return [size] if isinstance(size, int) else size or ()


def _resized(tensor: Tensor, dim: int, size: int) -> Tensor:
    missing = size - tensor.shape[dim]
    if size == -1 or not missing:
        return tensor
    return tensor.narrow(dim, 0, size) if missing < 0 else pad(tensor, [0, 0] * (tensor.dim() - 1 - dim) + [0, missing])


_TO_COMPLEX = ("fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn", "fft_irfft", "fft_irfft2", "fft_irfftn", "fft_hfft")
_FROM_REAL = {  # forward, with half of the frequencies
    "fft_fft": (True, False),
    "fft_ifft": (False, False),
    "fft_rfft": (True, True),
    "fft_rfft2": (True, True),
    "fft_rfftn": (True, True),
    "fft_ihfft": (False, True),
}
OUR_OWN: dict[Any, Callable[..., Tensor]] = {
    **{(whole := getattr(aten, name).default): partial(_made_complex, whole) for name in _TO_COMPLEX},
    **{(whole := getattr(aten, name).default): partial(_from_real, whole, *how) for name, how in _FROM_REAL.items()},
}
