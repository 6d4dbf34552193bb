"""Softmax, dropout and norms."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.laid_out import copies
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step

aten = torch.ops.aten


def _softmax_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # softmax_backward_cuda_out: the product of gradient and result.
    gradient = given.grad_output
    return RESULT, gradient.numel() * max(gradient.element_size(), given.output.element_size())


def _safe_softmax(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _safe_softmax: of contiguous scores, which are minus infinity, in which rows all are, and the zero that these get.
    scores = given.self
    rows = scores.numel() // max(1, scores.shape[given.dim])
    copy = copies(scores)
    return RESULT, *copy, *(-size for size in copy), scores.numel(), rows, out.element_size()


def _dropout(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # dropout_cuda: the mask first
    return Result(1), Result(0)


RULES: dict[object, Rule] = {
    aten._softmax_backward_data: _softmax_backward,
    aten._safe_softmax: _safe_softmax,
    aten.native_dropout: _dropout,
}
