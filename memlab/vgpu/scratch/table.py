"""All rules, and what they say of an operator."""

from collections.abc import Sequence
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.attention import scratch as attention
from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions import steps as convolutions
from memlab.vgpu.scratch import (
    cublas,
    deterministic,
    fourier,
    indexing,
    laid_out,
    layers,
    losses,
    quantizing,
    recurrent,
    reductions,
    softmax,
    sorting,
)
from memlab.vgpu.scratch.rule import Step

KINDS = (
    *(reductions, indexing, deterministic, attention, cublas, softmax, losses, sorting, layers, fourier, recurrent),
    *(laid_out, quantizing, convolutions),
)
RULES = {operator: rule for kind in KINDS for operator, rule in kind.RULES.items()}


def scratch(
    card: Card, func: Any, args: tuple[Any, ...], out: Any, kwargs: dict[str, Any] | None = None
) -> Sequence[Step]:
    """Return the allocations of an operator, in order; () where it allocates its results alone."""
    rule = RULES.get(func.overloadpacket)
    if rule is None or _is_on_the_host(out):
        return ()
    return tuple(rule(card, Arguments(func, args, kwargs), out))


def _is_on_the_host(out: Any) -> bool:
    """Return True if the result is on the host, made of tensors whose numbers are not known there either."""
    first = out[0] if isinstance(out, tuple | list) and out else out
    return isinstance(first, torch.Tensor) and first.device.type == "cpu"
