"""What a card does in place, or in one operator, is predicted so. The sizes are counted by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from memlab import predict

N = 2**20  # numbers of a tensor, 4 MiB each
UNIT = 4 * N


def peak(operation, *, shape=(1024, 1024), gpu="A100-40GB"):
    """The peak of one operation on a tensor of N numbers, forward and backward, in units of such a tensor."""

    def train(device):
        x = torch.ones(shape, device=device, requires_grad=True)
        while True:
            operation(x).backward()
            x.grad = None
            yield

    trace = predict(train, gpu=gpu)
    return round(max(sum(v[i] for c, v in trace.timeline.items()) for i in range(len(trace.allocated))) / UNIT, 2)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        # x, its exp, and in backward the gradient of the exp; sum gives an expanded scalar.
        (lambda x: x.exp().sum(), 3),
        # Two gradients of x meet: the second is added to the first in place.
        (lambda x: (x.exp() + x.sin()).sum(), 4),
        # silu, mish: one kernel forward, one backward.
        (lambda x: F.silu(x).sum(), 2),
        (lambda x: F.mish(x).sum(), 2),
        # log-sigmoid keeps x alone; the buffer is the CPU's.
        (lambda x: F.logsigmoid(x).sum(), 2),
        # gather, index and index_select write into zeros.
        (lambda x: x.gather(0, torch.zeros(1, 1024, dtype=torch.int64, device=x.device)).sum(), 2),
        (lambda x: x[torch.zeros(4, dtype=torch.int64, device=x.device)].sum(), 2),
        (lambda x: x.index_select(0, torch.zeros(4, dtype=torch.int64, device=x.device)).sum(), 2),
        (lambda x: x.max(dim=1).values.sum(), 2),
    ],
)
def test_the_peak_is_that_counted_by_hand(operation, expected):
    assert peak(operation) == pytest.approx(expected, abs=0.1)


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
