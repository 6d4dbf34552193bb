"""Gradients of embeddings that name the rows which they are of (Embedding.cpp, EmbeddingBag.cpp)."""

from typing import Any

import torch
from torch import Tensor

from memlab.vgpu import values
from memlab.vgpu.current_prediction import current
from memlab.vgpu.sparse.parts import Parts, consisting_of

aten = torch.ops.aten
MEAN = 1  # of EmbeddingBag's modes
ALL_COUNT = (
    "Which tokens are padding is not known where they were made on the card, or are more than a million: predicted is "
    "that none is, with an upper bound of sparse gradients."
)


def embedding_sparse_backward(grad: Tensor, indices: Tensor, rows: int, padding: int, is_scaled: bool) -> Tensor:
    """``aten.embedding_sparse_backward``, whose size depends on the tokens where there is padding."""
    if is_scaled:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    if padding != -1:
        indices, grad = _without_padding(indices, grad, padding)
    if indices.dtype is not torch.int64:
        indices = indices.to(torch.int64)  # the only type that sparse tensors have for them
    width = grad.shape[-1]
    parts = Parts(indices.reshape(1, -1), grad.reshape(indices.numel(), width))
    return consisting_of(parts, (rows, width))


def _without_padding(indices: Tensor, grad: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    is_word = indices != padding
    if values.is_known(is_word):
        return indices[is_word], grad[is_word]
    current().note(ALL_COUNT)
    return indices.flatten().clone(), grad.flatten(0, -2).clone()


def bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    sizes: Tensor,
    largest: Tensor,
    rows: int,
    is_scaled: bool,
    mode: int,
    is_sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    """``aten._embedding_bag_backward``: what each token has of its bag's gradient."""
    spread = grad.index_select(0, bags)
    if mode == MEAN:
        counts = aten._to_copy(sizes, dtype=spread.dtype)
        inverse = counts.reciprocal().mul_(1)
        spread.mul_(inverse.unsqueeze(1).index_select(0, bags))
        del counts, inverse
    if weights is not None:
        spread.mul_(weights.unsqueeze(1))
    return embedding_sparse_backward(spread, indices, rows, padding, is_scaled)


OUR_OWN: dict[Any, Any] = {aten.embedding_sparse_backward.default: embedding_sparse_backward}
