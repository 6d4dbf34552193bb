"""The allocations of a convolution, in their order: ``_convolution`` and ``convolution_backward``."""

from functools import lru_cache
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions import by_cudnn, by_matrices
from memlab.vgpu.convolutions.arguments import Settings, backward_arguments, forward_arguments
from memlab.vgpu.convolutions.asking import Ask, answered
from memlab.vgpu.convolutions.choice import is_depthwise, uses_cudnn
from memlab.vgpu.convolutions.views import View
from memlab.vgpu.convolutions.work import Work
from memlab.vgpu.scratch.rule import Rule, Step

aten = torch.ops.aten
Wanted = tuple[bool, bool, bool]  # the gradients of input, weight and bias


def forward(card: Card, given: Arguments, out: Any) -> list[Step]:
    """The steps of ``aten.convolution``."""
    x, w, settings = forward_arguments(card, given)
    return answered(_forward(card, x, w, View.of(out), settings))


def backward(card: Card, given: Arguments, out: Any) -> list[Step]:
    """The steps of ``aten.convolution_backward``."""
    return answered(_backward(card, *backward_arguments(card, given), tuple(given.output_mask)))


RULES: dict[object, Rule] = {aten.convolution: forward, aten.convolution_backward: backward}


@lru_cache(maxsize=10_000)
def _forward(card: Card, x: View, w: View, y: View, settings: Settings) -> list[Step | Ask]:
    work = Work(card)
    with work.scope():
        x, w, y = work.as_images(x), w.as_images(), y.as_images()
        if uses_cudnn(x, w, settings):
            by_cudnn.forward(work, x, w, y.shape, settings)
        elif is_depthwise(x, w, settings):
            work.in_format(x, False)
            work.result()
        else:
            by_matrices.forward(work, x, w, y, settings)
    return work.steps


@lru_cache(maxsize=10_000)
def _backward(card: Card, grad: View, x: View, w: View, settings: Settings, wanted: Wanted) -> list[Step | Ask]:
    work = Work(card)
    bias = wanted[2]
    with work.scope():
        x, grad, w = work.as_images(x), grad.as_images(), w.as_images()
        if uses_cudnn(x, w, settings):
            by_cudnn.backward(work, grad, x, w, settings, wanted)
        elif is_depthwise(x, w, settings):
            _depthwise_backward(work, grad, x)
        else:
            by_matrices.backward(work, grad, x, w, settings, wanted)
            bias = False
    if bias:
        work.result(2)
        work.sum_over_all_but_channels(grad)
    return work.steps


def _depthwise_backward(work: Work, grad: View, x: View) -> None:
    """``conv_depthwise2d_backward_cuda``: the weight's gradient comes first."""
    work.in_format(grad, False)
    work.in_format(x, False)
    work.result(1)
    work.result(0)
