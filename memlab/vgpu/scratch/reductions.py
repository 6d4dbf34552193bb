"""Sums, means, maxima and norms: partial results of blocks that work on one output together."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import reduction
from memlab.vgpu.scratch.rule import Rule

aten = torch.ops.aten


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
}
