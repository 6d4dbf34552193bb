"""Losses that CUDA makes of several kernels, with what lies between them."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.laid_out import copies
from memlab.vgpu.scratch.reductions import of_all
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step

aten = torch.ops.aten
NONE = 0  # at::Reduction
Given = tuple[Any, ...]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _reduction(args: Given, place: int) -> int:
    return args[place] if len(args) > place else 1


def _reduced_beside(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # mse_loss_out, smooth_l1_loss_out: the result has room for the whole loss, but that is made beside it
    if _reduction(args, 2) == NONE:
        return ()
    size = _whole(args)
    return size, *of_all(card, args[0]), -size


def _whole(args: Given) -> int:
    return torch.broadcast_shapes(args[0].shape, args[1].shape).numel() * args[0].element_size()


def _reduced_before(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # huber_loss: the loss, then its mean
    if _reduction(args, 2) == NONE:
        return ()
    return _whole(args), RESULT, *of_all(card, args[0])


def _reduced_inside(place: int) -> Rule:
    """binary_cross_entropy_out_cuda, soft_margin_loss_out: the whole loss is the result, and its mean goes into it."""

    def rule(card: Card, args: Given, out: Any) -> Iterable[Step]:
        return () if _reduction(args, place) == NONE else (RESULT, *_mean(card, args[0]))

    return rule


def _mean(card: Card, tensor: torch.Tensor) -> Iterable[Step]:
    return tensor.element_size(), *of_all(card, tensor)


def _soft_margin_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # soft_margin_loss_backward_out: -target, its product with the input, and exp of that
    size = _bytes(args[1])
    return size, size, size, -size, -size, RESULT


def _logits(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # binary_cross_entropy_with_logits: the log-sigmoid, 1 - target, and with weights of the positive class theirs
    size, reduction = _bytes(args[0]), args[4] if len(args) > 4 else 1
    weight = args[3] if len(args) > 3 else None
    yield from (size,)
    if weight is not None:
        yield from (_bytes(weight), size, -_bytes(weight), -size)
    if reduction == NONE:
        yield RESULT
    else:
        yield size
        yield RESULT
        yield from of_all(card, args[0])


def _per_sample(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # multi_margin_loss_cuda, multilabel_margin_loss_forward_out: a loss for each row
    laid_out = copies(*args[:2])
    if args[0].dim() < 2 or _reduction(args, 5) == NONE:
        return *laid_out, RESULT
    return *laid_out, RESULT, args[0].shape[0] * args[0].element_size()


def _per_sample_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    return RESULT, *copies(*args[:3])


def _multilabel_margin(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # multilabel_margin_loss_forward_out: which classes are targets, a loss for each row, their sum
    laid_out = copies(*args[:2])
    if args[0].dim() < 2 or _reduction(args, 2) == NONE:
        return *laid_out, Result(1), RESULT
    return *laid_out, Result(1), args[0].shape[0] * args[0].element_size(), RESULT


def _ctc(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # ctc_loss_gpu_template: lengths of inputs and targets, and where each target begins
    size = 8 * args[0].shape[1]
    return size, size, size, Result(1), RESULT


def _ctc_backward(card: Card, args: Given, out: Any) -> Iterable[Step]:
    # ctc_loss_backward_gpu_template: as before, and a state of its own like the forward pass's
    size = 8 * args[1].shape[1]
    return size, size, size, _bytes(args[6]), RESULT


RULES: dict[object, Rule] = {
    aten.mse_loss: _reduced_beside,
    aten.smooth_l1_loss: _reduced_beside,
    aten.huber_loss: _reduced_before,
    aten.binary_cross_entropy: _reduced_inside(3),
    aten.soft_margin_loss: _reduced_inside(2),
    aten.soft_margin_loss_backward: _soft_margin_backward,
    aten.binary_cross_entropy_with_logits: _logits,
    aten.multi_margin_loss: _per_sample,
    aten.multi_margin_loss_backward: _per_sample_backward,
    aten.multilabel_margin_loss_forward: _multilabel_margin,
    aten.multilabel_margin_loss_backward: _per_sample_backward,
    aten._ctc_loss: _ctc,
    aten._ctc_loss_backward: _ctc_backward,
}
