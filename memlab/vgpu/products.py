"""Derivatives of products: under a dispatch mode PyTorch goes the long way that zeros among the factors need.

On CUDA the formulas first look whether there is a zero (``prod_backward`` and ``cumprod_backward`` in
``FunctionsManual.cpp``). Here they are written out as they go on where there is none.
"""

from typing import Any

import torch
from torch import Tensor

from memlab.vgpu.internals import below_autograd, by_own_formula, transforms_functions

aten = torch.ops.aten


class _Product(torch.autograd.Function):
    """All factors multiplied, or those along a dimension."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int | None, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
        with below_autograd():
            out: Tensor
            if dim is None:
                out = aten.prod.default(tensor, dtype=dtype)
            else:
                out = aten.prod.dim_int(tensor, dim, keepdim, dtype=dtype)
        ctx.dim, ctx.is_kept = dim, keepdim
        ctx.save_for_backward(tensor, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensor, out = ctx.saved_tensors
        tensor = tensor.to(grad.dtype)
        if not tensor.dim():
            return grad.clone(), None, None, None
        if ctx.dim is None:
            tensor == 0  # noqa: B015  # made to be looked at, and gone
            return grad * (out / tensor), None, None, None
        if not ctx.is_kept:
            grad, out = grad.unsqueeze(ctx.dim), out.unsqueeze(ctx.dim)
        is_zero = tensor == 0
        zeros = is_zero.sum(ctx.dim, keepdim=True)
        zeros.sum()
        return grad * (out / tensor), None, None, None


class _RunningProduct(torch.autograd.Function):
    """The products of all up to each factor."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
        with below_autograd():
            out: Tensor = aten.cumprod.default(tensor, dim, dtype=dtype)
        ctx.dim = dim
        ctx.save_for_backward(tensor, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensor, out = ctx.saved_tensors
        grad = grad.to(tensor.dtype)
        if tensor.numel() <= 1 or tensor.shape[ctx.dim] == 1:
            return grad, None, None
        weighted, is_zero = out * grad, tensor == 0
        is_zero.any()
        return _summed_from_the_end(weighted, ctx.dim).div(tensor), None, None


def _summed_from_the_end(tensor: Tensor, dim: int) -> Tensor:
    flipped = tensor.flip(dim)
    summed = flipped.cumsum(dim)
    return summed.flip(dim)


def _prod(keys: Any, tensor: Tensor, *, dtype: torch.dtype | None = None) -> Any:
    if transforms_functions():
        return by_own_formula(keys, aten.prod.default, tensor, dtype=dtype)
    return _Product.apply(tensor, None, False, dtype)  # type: ignore[no-untyped-call]


def _prod_of_dim(
    keys: Any, tensor: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    if transforms_functions():
        return by_own_formula(keys, aten.prod.dim_int, tensor, dim, keepdim, dtype=dtype)
    return _Product.apply(tensor, dim, keepdim, dtype)  # type: ignore[no-untyped-call]


def _cumprod(keys: Any, tensor: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    if transforms_functions():
        return by_own_formula(keys, aten.cumprod.default, tensor, dim, dtype=dtype)
    return _RunningProduct.apply(tensor, dim, dtype)  # type: ignore[no-untyped-call]


WITH_FORMULAS = {aten.prod.default: _prod, aten.prod.dim_int: _prod_of_dim, aten.cumprod.default: _cumprod}
