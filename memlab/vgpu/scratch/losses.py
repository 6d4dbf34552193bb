"""Losses that CUDA makes of several kernels, with what lies between them."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.laid_out import copies
from memlab.vgpu.scratch.reductions import of_all
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step

aten = torch.ops.aten
NONE = 0  # at::Reduction


def _reduced_beside(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # mse_loss_out, smooth_l1_loss_out: the result has room for the whole loss, but that is made beside it
    if given.reduction == NONE:
        return ()
    size = _whole(given)
    return size, *of_all(card, given.self), -size


def _whole(given: Arguments) -> int:
    return torch.broadcast_shapes(given.self.shape, given.target.shape).numel() * given.self.element_size()


def _reduced_before(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # huber_loss: the loss, then its mean
    if given.reduction == NONE:
        return ()
    return _whole(given), RESULT, *of_all(card, given.self)


def _reduced_inside(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # binary_cross_entropy_out_cuda, soft_margin_loss_out: the whole loss is the result, and its mean goes into it
    return () if given.reduction == NONE else (RESULT, given.self.element_size(), *of_all(card, given.self))


def _soft_margin_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # soft_margin_loss_backward_out: -target, its product with the input, and exp of that
    size = given.self.nbytes
    return size, size, size, -size, -size, RESULT


def _logits(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # binary_cross_entropy_with_logits: the log-sigmoid, 1 - target, and with weights of the positive class theirs
    size, weight = given.self.nbytes, given.pos_weight
    yield from (size,)
    if weight is not None:
        yield from (weight.nbytes, size, -weight.nbytes, -size)
    if given.reduction == NONE:
        yield RESULT
    else:
        yield size
        yield RESULT
        yield from of_all(card, given.self)


def _per_sample(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # multi_margin_loss_cuda, multilabel_margin_loss_forward_out: a loss for each row
    tensor, laid_out = given.self, copies(given.self, given.target)
    if tensor.dim() < 2 or given.reduction == NONE:
        return *laid_out, RESULT
    return *laid_out, RESULT, tensor.shape[0] * tensor.element_size()


def _per_sample_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return RESULT, *copies(given.grad_output, given.self, given.target)


def _multilabel_margin(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # multilabel_margin_loss_forward_out: which classes are targets, a loss for each row, their sum
    tensor, laid_out = given.self, copies(given.self, given.target)
    if tensor.dim() < 2 or given.reduction == NONE:
        return *laid_out, Result(1), RESULT
    return *laid_out, Result(1), tensor.shape[0] * tensor.element_size(), RESULT


def _ctc(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # ctc_loss_gpu_template: lengths of inputs and targets, and where each target begins
    size = 8 * given.log_probs.shape[1]
    return size, size, size, Result(1), RESULT


def _ctc_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # ctc_loss_backward_gpu_template: as before, and a state of its own like the forward pass's
    size = 8 * given.log_probs.shape[1]
    return size, size, size, given.log_alpha.nbytes, RESULT


RULES: dict[object, Rule] = {
    aten.mse_loss: _reduced_beside,
    aten.smooth_l1_loss: _reduced_beside,
    aten.huber_loss: _reduced_before,
    aten.binary_cross_entropy: _reduced_inside,
    aten.soft_margin_loss: _reduced_inside,
    aten.soft_margin_loss_backward: _soft_margin_backward,
    aten.binary_cross_entropy_with_logits: _logits,
    aten.multi_margin_loss: _per_sample,
    aten.multi_margin_loss_backward: _per_sample_backward,
    aten.multilabel_margin_loss_forward: _multilabel_margin,
    aten.multilabel_margin_loss_backward: _per_sample_backward,
    aten._ctc_loss: _ctc,
    aten._ctc_loss_backward: _ctc_backward,
}
