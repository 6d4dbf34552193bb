"""Copies of tensors that a kernel cannot take as they lie in memory. PyTorch's CUDA build did so on the stand-in."""

import pytest
import torch

from memlab import predict
from memlab.vgpu.scratch.rule import RESULT, Result
from tests.vgpu.scratch.steps import made, steps

aten = torch.ops.aten
IMAGE = 4 * 2 * 8 * 32 * 32
POOLED = IMAGE // 4
PAIR = [2, 2]


def sliced(*shape):
    """Every second element of the last dimension."""
    return made(*shape[:-1], 2 * shape[-1])[..., ::2]


IMAGES = {
    "plain": made(2, 8, 32, 32),
    "last": made(2, 8, 32, 32).to(memory_format=torch.channels_last),
    "sliced": sliced(2, 8, 32, 32),
}


@pytest.mark.parametrize(
    ("operator", "plain", "last", "cut"),
    [
        (lambda x: (aten.avg_pool2d.default, x, PAIR), [RESULT], [RESULT], [RESULT, IMAGE]),
        (lambda x: (aten.max_pool2d_with_indices.default, x, PAIR), [RESULT], [RESULT], [RESULT, IMAGE]),
        (lambda x: (aten._adaptive_avg_pool2d.default, x, [4, 4]), [RESULT], [], [IMAGE, RESULT]),
        (lambda x: (aten.upsample_nearest2d.default, x, [64, 64]), [RESULT], [RESULT], [RESULT, IMAGE]),
        (lambda x: (aten.upsample_bilinear2d.default, x, [64, 64], False), [], [RESULT], []),
        (lambda x: (aten._softmax.default, x, 1, False), [RESULT], [RESULT, IMAGE], [RESULT, IMAGE]),
    ],
)
def test_images_are_copied_that_lie_otherwise(operator, plain, last, cut):
    found = [steps("T4", *operator(IMAGES[lies])) for lies in ("plain", "last", "sliced")]
    assert found == [plain, last, cut]


@pytest.mark.parametrize(
    ("gradient", "image", "copies"),
    [
        (made(2, 8, 16, 16), "plain", []),
        (sliced(2, 8, 16, 16), "plain", [POOLED]),
        (made(2, 8, 16, 16), "last", [POOLED]),
        (sliced(2, 8, 16, 16), "sliced", [IMAGE, POOLED]),
    ],
)
def test_a_gradient_lies_as_the_input_does(gradient, image, copies):
    mean = gradient, IMAGES[image], PAIR, PAIR, [0, 0], False, True, None
    assert steps("T4", aten.avg_pool2d_backward.default, *mean, out=made(2, 8, 32, 32)) == [RESULT, *copies]
    indices = made(2, 8, 16, 16, dtype=torch.int64)
    largest = gradient, IMAGES[image], PAIR, PAIR, [0, 0], [1, 1], False, indices
    pool = aten.max_pool2d_with_indices_backward.default
    assert steps("T4", pool, *largest, out=made(2, 8, 32, 32)) == [RESULT, *copies]


def test_norms_copy_their_input_first_and_the_gradient_last():
    rows, weight = made(4, 64, 1000).transpose(1, 2), made(64)
    size = 4 * 64_000 * 4
    state = made(4, 1000, 1), made(4, 1000, 1)
    assert steps("T4", aten.native_layer_norm.default, rows, [64], weight, weight, 1e-5) == [size, RESULT]
    assert steps("T4", aten.native_layer_norm.default, rows.contiguous(), [64], weight, weight, 1e-5) == [RESULT]
    args = rows, rows, [64], *state, weight, weight, [True] * 3
    assert steps("T4", aten.native_layer_norm_backward.default, *args) == [size, RESULT, size]
    args = rows, rows, [64], state[0], weight, [True, True]
    out = made(4, 1000, 64), weight
    assert steps("T4", aten._fused_rms_norm_backward.default, *args, out=out) == [size, RESULT, size]


def strides_on_the_card(operation, device="A100-40GB"):
    found = []

    def train(device):
        while True:
            found.append([tensor.stride() for tensor in operation(device)])
            yield

    predict(train, gpu=device)
    return found[0]


def test_the_gradient_of_a_norm_is_contiguous():
    def operation(device):
        x = torch.ones(4, 64, 1000, device=device).transpose(1, 2).requires_grad_()
        return torch.autograd.grad(torch.nn.functional.layer_norm(x, (64,)), x, torch.ones_like(x))

    assert strides_on_the_card(operation) == [(64_000, 64, 1)]


def test_what_is_enlarged_keeps_its_channels_last():
    def operation(device):
        x = torch.ones(2, 8, 4, 4, device=device).to(memory_format=torch.channels_last)
        return [torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")]

    assert strides_on_the_card(operation) == [(512, 1, 64, 8)]


def test_one_hot_writes_into_zeros():
    def train(device):
        labels = torch.zeros(50, dtype=torch.int64, device=device)
        while True:
            torch.nn.functional.one_hot(labels, 300)
            yield

    made_by = {event.op for event in predict(train, gpu="T4").events}
    assert "aten.new_zeros" in made_by
    assert "aten.eq" not in made_by


def test_losses_with_margins_copy_what_is_not_contiguous():
    scores, labels, whole = sliced(30, 100), made(30, dtype=torch.int64), made(30, 100)
    copy, row = 4 * 30 * 100, 4 * 30
    assert steps("T4", aten.multi_margin_loss.default, scores, labels) == [copy, RESULT, row]
    assert steps("T4", aten.multi_margin_loss.default, whole, labels) == [RESULT, row]
    classes = made(100, 30, dtype=torch.int64).t()
    out = made(), whole
    forward = steps("T4", aten.multilabel_margin_loss_forward.default, scores, classes, 1, out=out)
    assert forward == [copy, 2 * copy, Result(1), row, RESULT]
    backward = aten.multilabel_margin_loss_backward.default, made(), scores, classes, 1, whole
    assert steps("T4", *backward, out=whole) == [RESULT, copy, 2 * copy]
    backward = aten.multi_margin_loss_backward.default, made(30).expand(30), scores, labels, 1, 1
    assert steps("T4", *backward, out=whole) == [RESULT, copy]
