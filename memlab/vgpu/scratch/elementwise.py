"""Losses and functions that CUDA makes of several kernels, with what lies between them."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.rule import Rule

aten = torch.ops.aten


def _as_large_as_the_input(copies: int) -> Rule:
    def rule(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[int]:
        return [args[0].numel() * args[0].element_size()] * copies

    return rule


RULES: dict[object, Rule] = {
    aten.logsumexp: _as_large_as_the_input(1),  # logsumexp_out_impl: (self - maxes).exp_()
    # binary_cross_entropy_with_logits: the log-sigmoid, and 1 - target
    aten.binary_cross_entropy_with_logits: _as_large_as_the_input(2),
}
