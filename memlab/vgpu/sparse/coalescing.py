"""``coalesce()``: entries with one index are added up (``_coalesce_sparse_cuda``, SparseCUDATensor.cu)."""

from math import prod

import torch

from memlab.vgpu import values
from memlab.vgpu.current_prediction import current
from memlab.vgpu.internals import disable_modes
from memlab.vgpu.names import CARD
from memlab.vgpu.scratch import cub
from memlab.vgpu.sparse.parts import Parts

NOT_KNOWN = (
    "How many rows a sparse gradient has is not known where its indices were made on the card, or are more than a "
    "million: predicted are as many as it can have, an upper bound."
)


def coalesced(parts: Parts, shape: torch.Size) -> Parts:
    """Return the parts of a coalesced tensor of this shape."""
    count, dims = parts.count, parts.indices.shape[0]
    flat = flattened(parts.indices, shape, copied=True)
    held = [_empty(count), _empty(count)]  # origIndices, uniqueOffsets
    for nbytes in (cub.merge_sort(count, 8, 8), cub.thrust_unique_by_key(current().card, count, 8)):
        torch.empty(nbytes, dtype=torch.uint8, device=CARD)
    rows = _distinct(flat)
    left = min(count, prod(shape[:dims])) if rows is None else len(rows)
    sums = parts.values.new_empty((left, *parts.values.shape[1:]))
    held.append(parts.values.contiguous())
    # Of one dimension, they stay in the storage of all: indices1D is resized.
    indices = flat[:left].unsqueeze(0) if dims == 1 else _empty(dims, left)
    if rows is not None:
        values.tell(indices, _taken_apart(rows, shape[:dims]))
    return Parts(indices, sums, True)


def flattened(indices: torch.Tensor, shape: torch.Size, *, copied: bool = False) -> torch.Tensor:
    """One number for each index (``flatten_indices``, SparseTensorUtils.cpp)."""
    dims = indices.shape[0]
    if dims == 1:
        return indices.squeeze(0).clone() if copied else indices.squeeze(0)
    flat = _empty(indices.shape[1])
    if values.is_known(indices):
        with disable_modes():
            steps = torch.tensor([[prod(shape[dim + 1 : dims])] for dim in range(dims)])
            known = (values.numbers(indices) * steps).sum(0)
        values.tell(flat, known)
    return flat


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64, device=CARD)


def _distinct(flat: torch.Tensor) -> torch.Tensor | None:
    """The numbers that are there, each once; None where they are not known."""
    if not values.is_known(flat):
        current().note(NOT_KNOWN)
        return None
    with disable_modes():
        return values.numbers(flat).unique()


def _taken_apart(rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Indices that were flattened."""
    with disable_modes():
        return torch.stack(torch.unravel_index(rows, shape))
