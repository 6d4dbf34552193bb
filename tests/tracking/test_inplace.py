"""Operations that autograd does in place, or a card in one operator: measured and predicted so, counted by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from memlab import measure, predict
from memlab.tracking import Tracker
from tests.device import DEVICE

N = 2**20  # numbers of a tensor, 4 MiB each
UNIT = 4 * N


def loop(operation):
    def train(device):
        x = torch.ones(1024, 1024, device=device, requires_grad=True)
        while True:
            operation(x).backward()
            x.grad = None
            yield

    return train


def peak(trace):
    """The peak in units of a tensor of N numbers."""
    return round(max(sum(v[i] for c, v in trace.timeline.items()) for i in range(len(trace.allocated))) / UNIT, 2)


def zeros(*shape, device):
    return torch.zeros(*shape, dtype=torch.int64, device=device)


def weighted_entropy(x):
    weights = torch.ones(1024, device=x.device)
    return F.binary_cross_entropy_with_logits(x, torch.ones_like(x), pos_weight=weights, reduction="sum")


IN_PLACE = pytest.mark.parametrize(
    ("operation", "expected"),
    [
        # x, its exp, and in backward the gradient of the exp; sum gives an expanded scalar.
        (lambda x: x.exp().sum(), 3),
        # Two gradients of x meet: the second is added to the first in place.
        (lambda x: (x * 2).sum() + (x * 3).sum(), 3),
        # gather, index and index_select write into zeros.
        (lambda x: x.gather(0, zeros(1, 1024, device=x.device)).sum(), 2),
        (lambda x: x[zeros(4, device=x.device)].sum(), 2),
        (lambda x: x.index_select(0, zeros(4, device=x.device)).sum(), 2),
        (lambda x: x.take(zeros(4, device=x.device)).sum(), 2),
        (lambda x: x.max(dim=1).values.sum(), 2),
        # x, the targets, their product with the weights, that plus 1 (the gradient in the end), and the sigmoid.
        (weighted_entropy, 5),
    ],
)


@IN_PLACE
def test_the_peak_predicted_is_that_counted_by_hand(operation, expected):
    assert peak(predict(loop(operation), gpu="A100-40GB")) == pytest.approx(expected, abs=0.1)


def test_the_place_of_the_largest_is_found_in_place():
    # In backward: x, which numbers are none, which are the largest, and these cast to be counted.
    assert peak(predict(loop(lambda x: x.max()), gpu="A100-40GB")) == pytest.approx(1 + 0.25 + 0.25 + 2, abs=0.1)


def test_what_a_mask_has_chosen_is_put_back_in_place():
    def masked(x):
        return x.masked_select(torch.zeros(1024, 1024, dtype=torch.bool, device=x.device)).sum()

    # x, the mask and its gradient; on a card also a running sum of the mask, in int64.
    assert peak(measure(loop(masked), device="cpu")) == pytest.approx(1 + 0.25 + 1, abs=0.1)
    assert peak(predict(loop(masked), gpu="A100-40GB")) == pytest.approx(1 + 0.25 + 1 + 2, abs=0.1)


@IN_PLACE
def test_the_peak_x_rayed_is_that_counted_by_hand(operation, expected):
    assert peak(measure(loop(operation), device=DEVICE)) == pytest.approx(expected, abs=0.1)


def write_over(x):
    """The gradient that comes is read twice: without what was written over, and there."""
    return x.scatter(0, zeros(1, 1024, device=x.device), x[:1].sin()).exp().sum()


@pytest.mark.parametrize("operation", [*(case[0] for case in IN_PLACE.args[1]), write_over])
def test_an_x_ray_changes_no_gradient(operation):
    def gradient():
        x = torch.linspace(-1, 1, N).view(1024, 1024).requires_grad_()
        operation(x).backward()
        return x.grad

    with Tracker(torch.device("cpu")):
        seen = gradient()
    assert torch.equal(seen, gradient())


@pytest.mark.parametrize(
    "operation",
    [
        # silu, mish: one kernel forward, one backward.
        lambda x: F.silu(x).sum(),
        lambda x: F.mish(x).sum(),
        # log-sigmoid keeps x alone; the buffer is the CPU's.
        lambda x: F.logsigmoid(x).sum(),
    ],
)
def test_one_kernel_keeps_its_input_alone(operation):
    assert peak(predict(loop(operation), gpu="A100-40GB")) == pytest.approx(2, abs=0.1)


def test_a_gradient_that_is_no_fresh_tensor_of_zeros_is_not_written_to():
    written = [event for event in predict(loop(write_over)).events if event.op == "aten.scatter"]
    assert [event.bytes for event in written if event.phase == "backward" and event.bytes > 0] == [UNIT]


class Adding(torch.autograd.Function):
    """A backward formula of the reader's, which adds to what it has kept and to the gradient that comes."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        sum_ = ctx.saved_tensors[0] + gradient
        again = ctx.saved_tensors[0].scatter_add(0, zeros(1, 4, device=gradient.device), gradient)
        return sum_ + again + ctx.saved_tensors[0]


def test_what_a_readers_own_backward_reads_is_never_overwritten():
    def gradient():
        x = torch.linspace(0, 1, 16).view(4, 4).requires_grad_()
        y = x.sin()
        y.register_hook(lambda gradient: gradient + y.detach())
        Adding.apply(y).square().sum().backward()
        return x.grad

    with Tracker(torch.device("cpu")):
        seen = gradient()
    assert torch.equal(seen, gradient())


def test_rms_norm_is_one_kernel():
    def train(device):
        x = torch.ones(1024, 1024, device=device, dtype=torch.bfloat16, requires_grad=True)
        norm = nn.RMSNorm(1024, device=device, dtype=torch.bfloat16)
        while True:
            loss = norm(x).sum()
            loss.backward()
            x.grad = norm.weight.grad = None
            yield loss

    operators = {event.op for event in predict(train).events if event.bytes > UNIT // 8}
    assert operators <= {"aten._fused_rms_norm", "aten._fused_rms_norm_backward", "aten.expand", "aten.mul", "aten.add"}
    assert "aten._fused_rms_norm" in operators


def test_a_bias_is_added_in_place_to_what_is_not_contiguous():
    layer = {}

    def train(device):
        layer["linear"] = nn.Linear(1024, 1024).to(device)
        x = torch.ones(64, 16, 1024, device=device).transpose(0, 1)
        with torch.no_grad():
            while True:
                layer["linear"](x)
                yield

    trace = predict(train)
    assert [event.op for event in trace.events if event.bytes == UNIT] == ["aten.clone", "aten.mm"]


def test_a_gradient_that_others_hold_is_not_overwritten():
    def train(device):
        x = torch.ones(1024, 1024, device=device, requires_grad=True)
        while True:
            y = x.exp()
            (y + y.sin()).sum().backward()  # the first gradient of y is that of the sum, which sin needs too
            x.grad = None
            yield

    additions = [event for event in predict(train).events if event.op == "aten.add" and event.bytes == UNIT]
    assert len(additions) == 2  # y + sin(y), and the expanded gradient of the sum plus that of sin
