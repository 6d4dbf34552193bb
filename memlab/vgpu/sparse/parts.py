"""The parts of a sparse tensor on the card, and the answers to questions about it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from memlab.vgpu import values
from memlab.vgpu.internals import FakeTensor, unset_fake_temporarily
from memlab.vgpu.names import CARD
from memlab.vgpu.refusals import uncoalesced
from memlab.vgpu.results import make_fake

aten = torch.ops.aten


class Parts:
    """Indices and values of a sparse tensor, and whether no index is there twice."""

    __slots__ = ("indices", "is_coalesced", "values")

    def __init__(self, indices: torch.Tensor, values: torch.Tensor, is_coalesced: bool | None = None):
        self.indices = indices
        self.values = values
        # alias_into_sparse (SparseTensorUtils.h): one entry alone cannot be there twice.
        self.is_coalesced = values.shape[0] < 2 if is_coalesced is None else is_coalesced

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.values.shape[0]


def parts_of(tensor: torch.Tensor) -> Parts:
    """Return the parts of a sparse tensor on the card."""
    parts: Parts = tensor.__dict__["memlab_parts"]
    return parts


def is_sparse(value: Any) -> bool:
    """Return True if the value is a sparse tensor on the card."""
    return isinstance(value, FakeTensor) and "memlab_parts" in value.__dict__


def replace(tensor: torch.Tensor, parts: Parts) -> torch.Tensor:
    """Have a sparse tensor hold this in the place of what it held."""
    tensor.__dict__["memlab_parts"] = parts
    return tensor


def _made(
    mode: Any,
    sparse_dim: int,
    dense_dim: int,
    shape: Sequence[int],
    indices: torch.Tensor,
    values: torch.Tensor,
    *,
    is_coalesced: bool | None = None,
    **options: Any,
) -> torch.Tensor:
    # What it holds belongs to no graph: new_with_dims_and_tensor_sparse makes shallow copies.
    return _make(mode, shape, Parts(indices, values.detach() if values.requires_grad else values, is_coalesced))


def _made_empty(
    mode: Any,
    sparse_dim: int,
    dense_dim: int,
    shape: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> torch.Tensor:
    with unset_fake_temporarily():
        indices = torch.empty((sparse_dim, 0), dtype=torch.int64, device="meta")
        values = torch.empty((0, *shape[sparse_dim:]), dtype=dtype, device="meta")
        return _make(mode, shape, Parts(make_fake(mode, indices, CARD), make_fake(mode, values, CARD)))


def _make(mode: Any, shape: Sequence[int], parts: Parts) -> torch.Tensor:
    sparse_dim = parts.indices.shape[0]
    with unset_fake_temporarily():
        outside = aten._sparse_coo_tensor_with_dims.default(
            *(sparse_dim, len(shape) - sparse_dim, shape),
            dtype=parts.values.dtype,
            layout=torch.sparse_coo,
            device=torch.device("meta"),
        )
        return replace(make_fake(mode, outside, CARD), parts)


def _detached(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    parts = parts_of(tensor)
    return _make(mode, tensor.shape, Parts(parts.indices, parts.values, parts.is_coalesced))


def _emptied(mode: Any, tensor: torch.Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    """``zeros_like``, ``empty_like``: without an entry."""
    parts = parts_of(tensor)
    indices = parts.indices.new_empty((parts.indices.shape[0], 0))
    values = parts.values.new_empty((0, *parts.values.shape[1:]), dtype=dtype or parts.values.dtype)
    return _make(mode, tensor.shape, Parts(indices, values, True))


def _set_coalesced(mode: Any, tensor: torch.Tensor, is_coalesced: bool) -> torch.Tensor:
    parts_of(tensor).is_coalesced = is_coalesced
    return tensor


def _once(name: str) -> Callable[..., torch.Tensor]:
    """``indices()`` and ``values()``, which only a tensor answers that is coalesced."""

    def answered(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
        parts = parts_of(tensor)
        if not parts.is_coalesced:
            raise uncoalesced(name)
        held: torch.Tensor = getattr(parts, name)
        alias = held.detach()  # autograd makes it a view of the sparse tensor, which must not hold that itself
        values.tell_of(alias, held)
        return alias

    return answered


def consisting_of(parts: Parts, shape: Sequence[int]) -> torch.Tensor:
    """A sparse tensor of this shape."""
    dims = parts.indices.shape[0]
    tensor: torch.Tensor = MAKE(
        *(dims, len(shape) - dims, shape, parts.indices, parts.values),
        dtype=parts.values.dtype,
        layout=torch.sparse_coo,
        device=parts.values.device,
        is_coalesced=parts.is_coalesced,
    )
    return tensor


# What a sparse tensor says of itself, and shallow copies: no operator on the card.
HELD: dict[int, Callable[..., Any]] = {
    id(aten._indices.default): lambda mode, tensor: parts_of(tensor).indices,
    id(aten._values.default): lambda mode, tensor: parts_of(tensor).values,
    id(aten.indices.default): _once("indices"),
    id(aten.values.default): _once("values"),
}
ANSWERS: dict[int, Callable[..., Any]] = {
    **HELD,
    id(aten._nnz.default): lambda mode, tensor: parts_of(tensor).count,
    id(aten.is_coalesced.default): lambda mode, tensor: parts_of(tensor).is_coalesced,
    id(aten.sparse_dim.default): lambda mode, tensor: parts_of(tensor).indices.shape[0],
    id(aten.dense_dim.default): lambda mode, tensor: parts_of(tensor).values.dim() - 1,
    id(aten._coalesced_.default): _set_coalesced,
    id(aten.detach.default): _detached,
    id(aten.alias.default): _detached,
    id(aten.empty_like.default): _emptied,
    id(aten.zeros_like.default): _emptied,
}
MAKE = aten._sparse_coo_tensor_with_dims_and_tensors.default
MAKERS: dict[int, Callable[..., torch.Tensor]] = {
    id(MAKE): _made,
    id(aten._sparse_coo_tensor_with_dims.default): _made_empty,
    id(aten.sparse_coo_tensor.size): lambda mode, shape, **options: _made_empty(mode, len(shape), 0, shape, **options),
}
