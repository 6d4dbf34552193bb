"""Mixed precision by CUDA's rules."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from memlab import predict
from memlab.errors import NoVirtualGpu
from memlab.vgpu import autocast

HALF, SINGLE = torch.bfloat16, torch.float32


def on_the_card(work, gpu="A100-40GB"):
    """Return the result of ``work(device)`` on a virtual GPU."""
    results = []

    def train(device):
        results.append(work(device))
        yield

    predict(train, gpu=gpu, steps=1)
    return results[0]


def under_autocast(operation, *, dtype=HALF, inputs=SINGLE):
    def work(device):
        x = torch.ones(4, 8, 8, device=device, dtype=inputs)
        with torch.autocast(device.type, dtype):
            return operation(x).dtype

    return on_the_card(work)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x @ x,
        lambda x: torch.einsum("bij,bjk->bik", x, x),
        lambda x: F.linear(x, x[0]),
        lambda x: F.conv1d(x, x),
        lambda x: torch.bmm(x, x),
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: F.prelu(x, x[0, 0]),
    ],
)
def test_products_run_in_half_precision(operation):
    assert under_autocast(operation) is HALF
    assert under_autocast(operation, dtype=torch.float16) is torch.float16


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: F.layer_norm(x, (8,)),
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x, -1),
        lambda x: F.cross_entropy(x[0], torch.zeros(8, dtype=torch.int64, device=x.device)),
        lambda x: F.mse_loss(x, x),
        lambda x: x.exp(),
        lambda x: x.pow(2),
        lambda x: x.sum(),
        lambda x: x.cumsum(0),
        lambda x: x.norm(),
        lambda x: x.norm(dim=1),
        lambda x: x.norm(p=1, dim=(0, 1), keepdim=True),
        lambda x: torch.linalg.vector_norm(x),
    ],
)
def test_sums_norms_and_losses_run_in_float32(operation):
    assert under_autocast(operation, inputs=HALF) is SINGLE


@pytest.mark.parametrize("operation", [lambda x: F.gelu(x), lambda x: x + x, lambda x: x.mean(), lambda x: x.relu()])
@pytest.mark.parametrize("inputs", [HALF, SINGLE])
def test_the_rest_keeps_its_type(operation, inputs):
    assert under_autocast(operation, inputs=inputs) is inputs


def test_mixed_inputs_are_widened():
    assert under_autocast(lambda x: torch.addcmul(x, x.to(HALF), x.to(HALF))) is SINGLE
    assert under_autocast(lambda x: torch.addcmul(x.to(HALF), x.to(HALF), x.to(HALF))) is HALF


def test_autocast_that_is_off_does_nothing():
    def work(device):
        x = torch.ones(4, 8, 8, device=device)
        with torch.autocast(device.type, HALF), torch.autocast(device.type, enabled=False):
            return (x @ x).dtype

    assert on_the_card(work) is SINGLE


def test_a_weight_is_cast_once_in_a_region_and_its_cast_leaves_with_it():
    def train(device, *, products=1):
        weight = torch.ones(1024, 1024, device=device, requires_grad=True)
        x = torch.ones(1, 1024, device=device)
        while True:
            with torch.no_grad(), torch.autocast(device.type, HALF):
                for _ in range(products):
                    x @ weight
            yield torch.ones((), device=device)

    once, often = (predict(train, products=products) for products in (1, 50))
    assert once.peak_allocated == often.peak_allocated
    casts = [event for event in often.events if abs(event.bytes) == 2 * 1024 * 1024]
    assert [event.bytes > 0 for event in casts] == [True, False]


def test_float16_softmax_is_widened_in_the_kernel():
    def train(device, *, dtype="float16"):
        x = torch.ones(1024, 1024, device=device, dtype=getattr(torch, dtype))
        while True:
            yield F.softmax(x, -1, dtype=torch.float32)[0, 0]

    mib = 2**20
    assert predict(train).peak_allocated == 2 * mib + 4 * mib
    assert predict(train, dtype="bfloat16").peak_allocated == 2 * mib + 4 * mib + 4 * mib


def test_the_lists_are_those_of_the_torch_in_use():
    names = {macro: {operator.name() for operator in autocast.operators(macro)} for macro in autocast.LISTS}
    assert {"aten::mm", "aten::linear", "aten::scaled_dot_product_attention"} <= names["AT_FORALL_LOWER_PRECISION_FP"]
    assert {"aten::layer_norm", "aten::pow.Tensor_Scalar", "aten::nll_loss"} <= names["AT_FORALL_FP32"]
    assert {"aten::softmax.int", "aten::sum.dim_IntList"} <= names["AT_FORALL_FP32_SET_OPT_DTYPE"]
    assert "aten::addcmul" in names["AT_FORALL_PROMOTE"]
    assert all(not one & other for one in names.values() for other in names.values() if one is not other)
    with pytest.raises(NoVirtualGpu, match=r"CUDA's autocast lists are not in .*measure still works"):
        autocast.operators("AT_FORALL_NOTHING")


def test_scaling_and_half_precision_weights():
    def work(device):
        model = nn.Linear(8, 8).to(device, torch.float16)
        with torch.autocast(device.type):  # float16 by default, as on CUDA
            return model(torch.ones(1, 8, device=device)).dtype

    assert on_the_card(work) is torch.float16
