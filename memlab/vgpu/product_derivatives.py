"""Derivatives of products: under a dispatch mode PyTorch goes the long way that zeros among the factors need.

On CUDA the formulas first look whether there is a zero (``prod_backward`` and ``cumprod_backward`` in
``FunctionsManual.cpp``). Here they are written out as they go on where there is none.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from memlab.vgpu.internals import below_autograd, by_own_formula, transforms_functions

aten = torch.ops.aten


class _Derived(torch.autograd.Function):
    """An operator with another derivative, which has the result's gradient, the operator's arguments and its result."""

    @staticmethod
    def forward(ctx: Any, operator: Any, derivative: Callable[..., Tensor], options: Any, *given: Any) -> Tensor:
        tensor, *args = given
        with below_autograd():
            out: Tensor = operator(tensor, *args, **options)
        ctx.derivative, ctx.args = derivative, args
        ctx.save_for_backward(tensor, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensor, out = ctx.saved_tensors
        return None, None, None, ctx.derivative(grad, tensor, out, *ctx.args), *(None for _ in ctx.args)


def _of_all(grad: Tensor, tensor: Tensor, out: Tensor) -> Tensor:
    tensor = tensor.to(grad.dtype)
    if not tensor.dim():
        return grad.clone()
    tensor == 0  # noqa: B015  # made to be looked at, and gone
    return grad * (out / tensor)


def _of_dim(grad: Tensor, tensor: Tensor, out: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    tensor = tensor.to(grad.dtype)
    if not tensor.dim():
        return grad.clone()
    if not keepdim:
        grad, out = grad.unsqueeze(dim), out.unsqueeze(dim)
    is_zero = tensor == 0
    zeros = is_zero.sum(dim, keepdim=True)
    zeros.sum()
    return grad * (out / tensor)


def _running(grad: Tensor, tensor: Tensor, out: Tensor, dim: int) -> Tensor:
    grad = grad.to(tensor.dtype)
    if tensor.numel() <= 1 or tensor.shape[dim] == 1:
        return grad
    weighted, is_zero = out * grad, tensor == 0
    is_zero.any()
    return _summed_from_the_end(weighted, dim).div(tensor)


def _summed_from_the_end(tensor: Tensor, dim: int) -> Tensor:
    flipped = tensor.flip(dim)
    summed = flipped.cumsum(dim)
    return summed.flip(dim)


def _derived(operator: Any, derivative: Callable[..., Tensor], keys: Any, *args: Any, **options: Any) -> Any:
    if transforms_functions():
        return by_own_formula(keys, operator, *args, **options)
    return _Derived.apply(operator, derivative, options, *args)  # type: ignore[no-untyped-call]


_DERIVATIVES: dict[Any, Callable[..., Tensor]] = {
    aten.prod.default: _of_all,
    aten.prod.dim_int: _of_dim,
    aten.cumprod.default: _running,
}
WITH_FORMULAS = {operator: partial(_derived, operator, derivative) for operator, derivative in _DERIVATIVES.items()}
