"""Bytes that an operator needs on CUDA only while it runs: what no tensor shows.

Each rule gives the sizes that CUDA's kernels allocate beside the operator's results and free at its end. It names the
recorded trace (``tests/allocator/test_real_traces.py``) that shows it or, until one does, the function of PyTorch that
says so. What cuDNN takes for a convolution is not known before it has measured its own kernels, and is left out.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from memlab.vgpu import reduction
from memlab.vgpu.cards import Card

aten = torch.ops.aten

Rule = Callable[[Card, tuple[Any, ...], Any], Iterable[int]]  # of the card, an operator's arguments and its results


def scratch(card: Card, func: Any, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    """The sizes, in bytes, in the order in which they are allocated."""
    rule = RULES.get(func.overloadpacket)
    return rule(card, args, out) if rule else ()


def _reduction(element: int | None) -> Rule:
    """A reduction of ``args[0]`` over ``args[1]``; ``element`` bytes a partial result, None: as wide as a sum's."""

    def rule(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
        tensor = args[0]
        dims = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else None
        width = element or (8 if tensor.dtype in (torch.float64, torch.int64) else 4)
        return reduction.buffers(tensor, dims, width, card.processors, card.threads)

    return rule


def _reduction_of_one_dim(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # A partial result is a value and its position.
    dims = [args[1]] if len(args) > 1 and args[1] is not None else None
    return reduction.buffers(args[0], dims, 16, card.processors, card.threads)


def _norm(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    dims = args[2] if len(args) > 2 else None
    return reduction.buffers(args[0], dims, 4, card.processors, card.threads)


def _index_put(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # medium_128_fp32, IndexBackward0: the linear index (a remainder and a product), its sorted copy, the positions
    # sorted along, the positions themselves, and a byte for the sort.
    indices, accumulate = args[1], len(args) > 3 and args[3]
    if not accumulate:
        return ()
    count = max(index.numel() for index in indices if index is not None)
    return (*[8 * count] * 5, 1)


def _embedding_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # embedding_dense_backward_cuda and embedding_backward_cuda_kernel: more than 3072 tokens are sorted, and
    # the gradients of equal ones summed in parts of 10 rows.
    gradient, tokens, rows = args[:3]
    count, width = tokens.numel(), gradient.shape[-1]
    if count <= 3072:
        return ()
    segments = min(count, rows)
    parts = count // 10 + segments
    index = tokens.element_size()
    widest = max(gradient.element_size(), 4)
    return (*[index * count] * 4, *[index * segments] * 2, index * parts, widest * parts * width)


def _flash_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # mha_bwd: the sums of softmax's backward, and a float32 gradient of the queries; with fewer key heads than query
    # heads, gradients of keys and values for each query head.
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    length = -(-length // 128) * 128
    padded = -(-width // 32) * 32 if width <= 192 else 256
    sizes = [4 * batch * heads * length, 4 * batch * heads * length * padded]
    if key.shape[1] != heads:
        sizes += [query.element_size() * batch * heads * key.shape[2] * width] * 2
    return sizes


def _efficient_backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    # _efficient_attention_backward: in float32 the product of result and gradient, and its row sums; in half
    # precision the kernel makes the sums itself, but needs a float32 gradient of the queries.
    query, result = args[1], args[5]
    batch, heads, length, width = query.shape
    sums = 4 * batch * heads * length
    if query.dtype is torch.float32:
        return (4 * result.numel(), sums)
    return (sums, 4 * batch * heads * (-(-length // 64) * 64) * width)


def _as_large_as_the_input(copies: int) -> Rule:
    def rule(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
        return [args[0].numel() * args[0].element_size()] * copies

    return rule


RULES: dict[object, Rule] = {
    aten.sum: _reduction(None),
    aten.mean: _reduction(None),
    aten.amax: _reduction(None),
    aten.amin: _reduction(None),
    aten.max: _reduction_of_one_dim,
    aten.min: _reduction_of_one_dim,
    aten.argmax: _reduction_of_one_dim,
    aten.argmin: _reduction_of_one_dim,
    aten.var: _reduction(16),
    aten.var_mean: _reduction(16),
    aten.linalg_vector_norm: _norm,
    aten.embedding_dense_backward: _embedding_backward,
    aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    aten.logsumexp: _as_large_as_the_input(1),  # logsumexp_out_impl: (self - maxes).exp_()
    # binary_cross_entropy_with_logits: the log-sigmoid, and 1 - target
    aten.binary_cross_entropy_with_logits: _as_large_as_the_input(2),
    aten.index_put_: _index_put,
    aten.index_put: _index_put,
    aten._index_put_impl_: _index_put,
}

# Operators that multiply matrices with cuBLAS: each thread's first one allocates that thread's workspace, for good.
MATMULS = {
    getattr(aten, name)
    for name in ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "_addmm_activation", "_int_mm")
}
