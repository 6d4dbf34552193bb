"""Bytes that an operator needs on CUDA only while it runs: what no tensor shows.

Each rule gives the sizes that CUDA's kernels allocate beside the operator's results and free at its end, and names the
recorded trace (``tests/test_real_traces.py``) that shows it.
"""

from collections.abc import Callable, Iterable

import torch

from memlab.vgpu import reduction
from memlab.vgpu.cards import Card

aten = torch.ops.aten


def scratch(card: Card, func, args: tuple, out) -> Iterable[int]:
    """The sizes, in bytes, in the order in which they are allocated."""
    rule = RULES.get(func.overloadpacket)
    return rule(card, args, out) if rule else ()


def _reduction(element: int | None):
    """A reduction of ``args[0]`` over ``args[1]``; ``element`` bytes a partial result, None: as wide as a sum's."""

    def rule(card, args, out):
        tensor = args[0]
        dims = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else None
        width = element or (8 if tensor.dtype in (torch.float64, torch.int64) else 4)
        return reduction.buffers(tensor, dims, width, card.processors, card.threads)

    return rule


def _reduction_of_one_dim(card, args, out):
    # A partial result is a value and its position.
    dims = [args[1]] if len(args) > 1 and args[1] is not None else None
    return reduction.buffers(args[0], dims, 16, card.processors, card.threads)


def _norm(card, args, out):
    dims = args[2] if len(args) > 2 else None
    return reduction.buffers(args[0], dims, 4, card.processors, card.threads)


def _index_put(card, args, out):
    # medium_128_fp32, IndexBackward0: the linear index (a remainder and a product), its sorted copy, the positions
    # sorted along, the positions themselves, and a byte for the sort.
    indices, accumulate = args[1], len(args) > 3 and args[3]
    if not accumulate:
        return ()
    count = max(index.numel() for index in indices if index is not None)
    return (*[8 * count] * 5, 1)


RULES: dict[object, Callable] = {
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
    aten.index_put_: _index_put,
    aten.index_put: _index_put,
    aten._index_put_impl_: _index_put,
}

# Operators that multiply matrices with cuBLAS: each thread's first one allocates that thread's workspace, for good.
MATMULS = {
    getattr(aten, name)
    for name in ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "_addmm_activation", "_int_mm")
}
