"""Derivatives of products: those that CUDA works out where there is no zero."""

import pytest
import torch

from memlab import predict
from memlab.vgpu.product_derivatives import WITH_FORMULAS
from tests.vgpu.once import seen

aten = torch.ops.aten
PROD, PROD_OF_DIM, CUMPROD = (
    WITH_FORMULAS[operator] for operator in (aten.prod.default, aten.prod.dim_int, aten.cumprod.default)
)
WAYS = {
    "all": (PROD, torch.prod, ()),
    "a row": (PROD_OF_DIM, torch.prod, (1,)),
    "a row that is kept": (PROD_OF_DIM, torch.prod, (0, True)),
    "running": (CUMPROD, torch.cumprod, (1,)),
    "running down": (CUMPROD, torch.cumprod, (-2,)),
}


@pytest.mark.parametrize(("ours", "theirs", "args"), WAYS.values(), ids=WAYS)
def test_the_formula_is_right(ours, theirs, args):
    x = torch.linspace(1, 2, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    assert torch.equal(ours(None, x, *args), theirs(x, *args))
    assert torch.autograd.gradcheck(lambda x: ours(None, x, *args), x)
    assert torch.autograd.gradgradcheck(lambda x: ours(None, x, *args), x)


@pytest.mark.parametrize("ours", [PROD, lambda keys, x, **how: CUMPROD(keys, x, 0, **how)])
def test_of_another_type(ours):
    x = torch.linspace(1, 2, 12).half().requires_grad_()
    out = ours(None, x, dtype=torch.float32)
    out.sum().backward()
    assert (out.dtype, x.grad.dtype) == (torch.float32, torch.float16)


# What a plain loop takes with PyTorch on the stand-in, less the 512 bytes of the loss that its `for` holds.
@pytest.mark.parametrize(
    ("multiply", "peak"),
    [
        (lambda w: w.prod(-1).mean(), 17892352),
        (lambda w: w.prod(0, keepdim=True).mean(), 34608640),
        (lambda w: w.prod(), 16778240),
        (lambda w: w.cumprod(0).mean(), 34604032),
    ],
)
def test_it_takes_what_cuda_takes(multiply, peak):
    def train(device):
        w = torch.nn.Parameter(torch.rand(4096, 256, device=device))
        optimizer = torch.optim.SGD([w], lr=0.1)
        while True:
            loss = multiply(w * 0.5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    assert predict(train, steps=3).peak_allocated == peak


def test_functions_that_are_transformed_have_pytorchs_formula():
    def work(device):
        x = torch.ones(4, 3, device=device, requires_grad=True)
        per_row = torch.func.vmap(torch.func.grad(lambda row: row.cumprod(0).sum() + row.prod()))(x)
        return per_row.shape

    assert seen(work) == (4, 3)


def test_known_numbers_stay_known():
    assert seen(lambda device: torch.tensor([2, 3], device=device).prod().item()) == 6
