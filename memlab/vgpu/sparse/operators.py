"""Operators on sparse tensors, taken apart as ATen's kernels for CUDA do it.

Of ``aten/src/ATen/native/sparse``: SparseTensor.cpp, SparseTensorMath.cpp and cuda/SparseCUDATensorMath.cu. The order
of allocations is theirs; where C++ works the arguments of a call out, the last comes first.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from memlab.tracking.internals import called_by_engine, current_node
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.names import CARD
from memlab.vgpu.refusals import sparse
from memlab.vgpu.sparse.coalescing import coalesced, flattened
from memlab.vgpu.sparse.embeddings import bag_backward
from memlab.vgpu.sparse.parts import Parts, consisting_of, is_sparse, parts_of, replace

aten = torch.ops.aten


def way_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Callable[..., Any] | None:
    """Return the decomposition of an operator that takes or makes a sparse tensor of the card; None for all others."""
    way = WAYS.get(id(func))  # by id: operators live for ever, and hash slowly
    if way is None:
        return None
    given = Arguments(func, args, kwargs)
    if func is aten._to_copy.default and given.self.layout is torch.sparse_coo:
        return way if is_sparse(given.self) or torch.device(given.device or "cpu") == CARD else None
    if func is aten._embedding_bag_backward.default:
        return way if given.sparse else None
    return way if any(map(is_sparse, args)) or _lists_sparse(args) else None


def _lists_sparse(args: Sequence[Any]) -> bool:
    """Return True if one of the arguments is a list with a sparse tensor, as ``_foreach_add_`` has two."""
    return any(isinstance(given, list) and any(map(is_sparse, given)) for given in args)


def _coalesce(tensor: Tensor) -> Tensor:
    return consisting_of(coalesced(parts_of(tensor), tensor.shape), tensor.shape)


def _once(tensor: Tensor) -> Parts:
    """Return the parts of a tensor once it is coalesced, be it for this operator alone."""
    parts = parts_of(tensor)
    return parts if parts.is_coalesced else coalesced(parts, tensor.shape)


def _copy(parts: Parts) -> Parts:
    values = parts.values.clone()
    return Parts(parts.indices.clone(), values, parts.is_coalesced)


def _clone(tensor: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    parts = parts_of(tensor)
    return consisting_of(parts if _is_stolen(parts) else _copy(parts), tensor.shape)


def _is_stolen(parts: Parts) -> bool:
    """Return True if the engine takes a gradient over as it is, and copies it only because a mode holds its parts too.

    Its conditions are in ``accumulate_grad.h``.
    """
    node = current_node()
    if node is None or not node.name().endswith("AccumulateGrad") or torch.is_grad_enabled() or not called_by_engine():
        return False
    return parts.indices.is_contiguous() and parts.values.is_contiguous()


def _of_type(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor itself where it is of this type."""
    return tensor if tensor.dtype is dtype else aten._to_copy(tensor, dtype=dtype)


def _to_copy(
    tensor: Tensor, *, dtype: torch.dtype | None = None, device: torch.device | None = None, **options: Any
) -> Tensor:
    indices = aten._to_copy(tensor._indices(), device=device)
    values = aten._to_copy(tensor._values(), dtype=dtype, device=device)
    return consisting_of(Parts(indices, values, tensor.is_coalesced()), tensor.shape)


def _copy_(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    if not (is_sparse(tensor) and is_sparse(source)):
        raise sparse(aten.copy_.default)
    return replace(tensor, _copy(parts_of(source)))


def _add(tensor: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    if is_sparse(tensor):
        return consisting_of(_sum(tensor, other, alpha), tensor.shape)
    dtype = torch.promote_types(tensor.dtype, other.dtype)
    return _add_(torch.empty_like(tensor, dtype=dtype).copy_(_of_type(tensor, dtype)), other, alpha=alpha)


def _add_(tensor: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    if is_sparse(tensor):
        return replace(tensor, _sum(tensor, other, alpha, in_place=True))
    return _added_to_dense(tensor, other, alpha)


def _sub(tensor: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    return _add(tensor, other, alpha=-alpha)


def _sub_(tensor: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    return _add_(tensor, other, alpha=-alpha)


def _sum(tensor: Tensor, other: Tensor, alpha: float, *, in_place: bool = False) -> Parts:
    """``add_out_sparse_cuda``: the entries of both, one after the other."""
    if not is_sparse(other) or tensor.shape != other.shape:
        raise sparse(aten.add.Tensor)  # which PyTorch refuses too
    first, second = parts_of(tensor), parts_of(other)
    if not second.count:
        return first if in_place else _copy(first)
    if not first.count:
        return _scaled(second, alpha)
    dtype = torch.promote_types(first.values.dtype, second.values.dtype)
    before, after = _of_type(first.values, dtype), _of_type(second.values, dtype)
    after = after if alpha == 1 else after * alpha
    indices = torch.cat([first.indices, second.indices], 1)
    parts = Parts(indices, torch.cat([before, after]))
    return coalesced(parts, tensor.shape) if parts.count > prod(tensor.shape) else parts


def _added_to_dense(tensor: Tensor, other: Tensor, alpha: float) -> Tensor:
    """``add_out_dense_sparse_cuda``, in place."""
    if tensor.shape != other.shape:
        raise sparse(aten.add.Tensor)  # which PyTorch refuses too
    parts = parts_of(other)
    if not parts.values.numel():
        return tensor
    dtype = torch.promote_types(tensor.dtype, parts.values.dtype)
    out = tensor if tensor.dtype is dtype else torch.empty_like(tensor, dtype=dtype)
    buffer = _of_type(tensor, dtype)
    values = _of_type(parts.values, dtype)
    width = prod(values.shape[1:])
    if parts.is_coalesced:  # a kernel that reads the indices as they are
        values, indices = values.contiguous(), parts.indices[0]
    else:
        indices = flattened(parts.indices, tensor.shape)
    out.view(-1, width).index_add_(0, indices, values.reshape(-1, width), alpha=alpha)
    if out is not tensor:
        tensor.copy_(out)
    del buffer  # not before
    return tensor


def _scaled(parts: Parts, number: Any, by: Callable[..., Tensor] = torch.mul) -> Parts:
    """``_mul_sparse_sparse_zero_dim_out``, and ``div_out_sparse_zerodim``."""
    return Parts(parts.indices.clone(), by(parts.values, number), parts.is_coalesced)


def _mul(tensor: Tensor, other: Any) -> Tensor:
    if not is_sparse(tensor):
        tensor, other = other, tensor
    if is_sparse(other):
        raise sparse(aten.mul.Tensor)
    return (
        consisting_of(_scaled(parts_of(tensor), other), tensor.shape) if _is_number(other) else _masked(other, tensor)
    )


def _mul_(tensor: Tensor, other: Any) -> Tensor:
    if not _is_number(other):
        raise sparse(aten.mul_.Tensor)
    return replace(tensor, _scaled(parts_of(tensor), other))


def _div(tensor: Tensor, other: Any) -> Tensor:
    if not _is_number(other):
        raise sparse(aten.div.Tensor)
    return consisting_of(_scaled(parts_of(tensor), other, torch.div), tensor.shape)


def _div_(tensor: Tensor, other: Any) -> Tensor:
    if not _is_number(other):
        raise sparse(aten.div_.Tensor)
    parts_of(tensor).values.div_(other)
    return tensor


def _is_number(value: Any) -> bool:
    return not isinstance(value, Tensor) or (value.dim() == 0 and not is_sparse(value))


def _neg(tensor: Tensor) -> Tensor:
    return _neg_(consisting_of(_copy(parts_of(tensor)), tensor.shape))


def _neg_(tensor: Tensor) -> Tensor:
    parts_of(tensor).values.neg_()
    return tensor


def _zero_(tensor: Tensor) -> Tensor:
    """Without an entry: ``zero_sparse_``."""
    return replace(tensor, parts_of(torch.zeros_like(tensor)))


def _masked(tensor: Tensor, mask: Tensor) -> Tensor:
    """``_mul_dense_sparse_out``: a product with what is dense, at the entries."""
    if tensor.shape != mask.shape:
        raise sparse(aten.mul.Tensor)
    parts = parts_of(mask)
    there = tensor[tuple(parts.indices.unbind(0))]
    indices = parts.indices.clone()
    return consisting_of(Parts(indices, parts.values * there, parts.is_coalesced), mask.shape)


def _sparse_mask(tensor: Tensor, mask: Tensor) -> Tensor:
    if is_sparse(tensor):
        raise sparse(aten.sparse_mask.default)
    parts = parts_of(mask)
    if not parts.count:
        return _of_type(mask.clone(), tensor.dtype)
    ones = parts.values.new_ones(1).expand_as(parts.values)
    masked = _masked(tensor, consisting_of(Parts(parts.indices, ones, parts.is_coalesced), mask.shape))
    return _of_type(masked, tensor.dtype)


def _to_dense(tensor: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> Tensor:
    dense = torch.zeros(tensor.shape, dtype=tensor.dtype, device=CARD)
    return _added_to_dense(dense, tensor, 1)


def _total(tensor: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return parts_of(tensor).values.sum(dtype=dtype)


def _norm(tensor: Tensor, p: Any = 2, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    """``sparse_norm``: of all entries alone."""
    if keepdim or 0 < len(dim) < tensor.dim():
        raise sparse(aten.norm.ScalarOpt_dim)
    return _once(tensor).values.norm(2 if p is None else p)


def _norm_of_all(tensor: Tensor, p: Any = 2) -> Tensor:
    return _norm(tensor, p)


def _each(operator: Any, one: Callable[..., Tensor]) -> Callable[..., list[Tensor] | None]:
    """A foreach operator, which takes sparse tensors one by one."""
    is_in_place = operator._schema.is_mutable

    def run(tensors: list[Tensor], *others: Any, **options: Any) -> list[Tensor] | None:
        spread = [other if isinstance(other, list) else [other] * len(tensors) for other in others]
        results = [one(*given, **options) for given in zip(tensors, *spread, strict=True)]
        return None if is_in_place else results

    return run


_ONE_BY_ONE: dict[Any, Callable[..., Any]] = {
    aten._foreach_add.List: torch.add,
    aten._foreach_add_.List: Tensor.add_,
    aten._foreach_sub.List: torch.sub,
    aten._foreach_sub_.List: Tensor.sub_,
    aten._foreach_mul.Scalar: torch.mul,
    aten._foreach_mul_.Scalar: Tensor.mul_,
    aten._foreach_mul.Tensor: torch.mul,
    aten._foreach_mul_.Tensor: Tensor.mul_,
    aten._foreach_div.Scalar: torch.div,
    aten._foreach_div_.Scalar: Tensor.div_,
    aten._foreach_neg.default: torch.neg,
    aten._foreach_neg_.default: Tensor.neg_,
    aten._foreach_zero_.default: Tensor.zero_,
}
_WAYS: dict[Any, Callable[..., Any]] = {
    aten._coalesce.default: _coalesce,
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten.copy_.default: _copy_,
    aten.add.Tensor: _add,
    aten.add_.Tensor: _add_,
    aten.sub.Tensor: _sub,
    aten.sub_.Tensor: _sub_,
    aten.mul.Tensor: _mul,
    aten.mul.Scalar: _mul,
    aten.mul_.Tensor: _mul_,
    aten.mul_.Scalar: _mul_,
    aten.div.Tensor: _div,
    aten.div.Scalar: _div,
    aten.div_.Tensor: _div_,
    aten.div_.Scalar: _div_,
    aten.neg.default: _neg,
    aten.neg_.default: _neg_,
    aten.zero_.default: _zero_,
    aten.sparse_mask.default: _sparse_mask,
    aten._to_dense.default: _to_dense,
    aten.sum.default: _total,
    aten.norm.Scalar: _norm_of_all,
    aten.norm.ScalarOpt_dim: _norm,
    aten._embedding_bag_backward.default: bag_backward,
    **{operator: _each(operator, one) for operator, one in _ONE_BY_ONE.items()},
}
WAYS = {id(operator): way for operator, way in _WAYS.items()}
