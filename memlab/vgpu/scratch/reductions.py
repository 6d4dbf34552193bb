"""Sums, means, maxima and norms: partial results of blocks that work on one output together."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import reduction
from memlab.vgpu.scratch.laid_out import copies, flattened
from memlab.vgpu.scratch.rule import RESULT, Rule, Step

aten = torch.ops.aten
Width = Callable[[torch.Tensor], int]  # bytes of one partial result


def wide(tensor: torch.Tensor) -> int:
    """As a sum is: ``at::acc_type``, and 8 bytes for whole numbers."""
    return 4 if tensor.dtype in (torch.float16, torch.bfloat16, torch.float32) else max(8, tensor.element_size())


def plain(tensor: torch.Tensor) -> int:
    """As the input, for maxima."""
    return tensor.element_size()


def _welford(tensor: torch.Tensor) -> int:
    return 32 if tensor.dtype is torch.float64 else 16  # WelfordData: mean, deviation and two counts


def _truth(tensor: torch.Tensor) -> int:
    return 1


def of_all(card: Card, tensor: torch.Tensor, width: int | None = None) -> tuple[int, ...]:
    """The buffers of a reduction, or a sum, of all, contiguous, elements: allocated, and given back."""
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device="meta")
    return over(card, flat, None, width or wide(tensor))


def over(card: Card, tensor: torch.Tensor, dims: Sequence[int] | None, width: int) -> tuple[int, ...]:
    """The buffers of a reduction over these dimensions: allocated, and given back."""
    taken = reduction.buffers(tensor, dims, width, card.processors, card.threads, int(tensor.storage_offset()))
    return (*taken, *(-size for size in reversed(taken)))


def _dims(given: Arguments) -> Sequence[int] | None:
    """The dimensions that are reduced, None for all: of what reduces all some overloads have no ``dim``."""
    dim = given.get("dim")
    return [dim] if isinstance(dim, int) else dim


def _reduction(width: Width) -> Rule:
    """A reduction of ``self`` over ``dim``, with partial results of this width."""

    def rule(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
        return over(card, given.self, _dims(given), width(given.self))

    return rule


def _added(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # make_reduction casts whole numbers before it adds them, floats in the kernel
    tensor = given.self
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.element_size() == 8:
        return over(card, tensor, _dims(given), wide(tensor))
    return 8 * tensor.numel(), *over(card, tensor, _dims(given), 8)


def _extreme(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # With its position, where there is one dimension; else the value alone, of a contiguous tensor (ReduceAllOps.cpp).
    tensor, dims = given.self, _dims(given)
    if dims is None:
        return *copies(tensor), *of_all(card, tensor, plain(tensor))
    return over(card, tensor, dims, 16)


def _position(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # argmax_argmin_impl makes one dimension of all
    tensor, dims = given.self, _dims(given)
    copy = flattened(tensor) if dims is None else []
    return *copy, *(of_all(card, tensor, 16) if copy else over(card, tensor, dims, 16))


def _extremes(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    tensor, dims = given.self, _dims(given)
    if dims is None:
        return *copies(tensor), *of_all(card, tensor, 2 * plain(tensor))
    return over(card, tensor, dims, 2 * plain(tensor))


def _count_nonzero(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    count = given.self.numel()
    truths = () if given.self.dtype is torch.bool else (count,)
    return *truths, RESULT, 8 * count, *over(card, given.self, _dims(given), 8)


def _logsumexp(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # logsumexp_out_impl: the maxima, which of them are infinite, and exp of what is left, which is summed
    tensor, dims = given.self, _dims(given)
    size, kept = tensor.numel() * tensor.element_size(), out.numel() * out.element_size()
    maxima = (kept, *over(card, tensor, dims, plain(tensor)))
    infinite = (kept, out.numel(), -out.numel(), -kept)
    return *maxima, *infinite, size, RESULT, *over(card, tensor, dims, wide(tensor))


def _foreach_norm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # foreach_tensor_norm_cuda: a part for each 65,536 elements, as many for all tensors as for the longest
    return _parts(given.self), RESULT


def _foreach_max(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, _parts(given.self)


def _parts(tensors: Sequence[torch.Tensor]) -> int:
    return len(tensors) * max(-(-tensor.numel() // 65536) for tensor in tensors) * wide(tensors[0])


RULES: dict[object, Rule] = {
    aten.sum: _added,
    aten.mean: _reduction(wide),
    aten.nansum: _added,
    aten.prod: _added,
    aten.amax: _reduction(plain),
    aten.amin: _reduction(plain),
    aten.any: _reduction(_truth),
    aten.all: _reduction(_truth),
    aten.max: _extreme,
    aten.min: _extreme,
    aten.argmax: _position,
    aten.argmin: _position,
    aten.aminmax: _extremes,
    aten.var: _reduction(_welford),
    aten.std: _reduction(_welford),
    aten.var_mean: _reduction(_welford),
    aten.std_mean: _reduction(_welford),
    aten.linalg_vector_norm: _reduction(wide),
    aten.count_nonzero: _count_nonzero,
    aten.logsumexp: _logsumexp,
    aten._foreach_norm: _foreach_norm,
    aten._foreach_max: _foreach_max,
}
