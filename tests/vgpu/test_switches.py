"""PyTorch's switches, which are the whole process's: of a prediction, of cells beside it, and after it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.backends import cuda, cudnn
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlab import predict
from memlab.vgpu import switches

ALL = (True, True, True)


def kernels():
    return cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()


def attend(device, seen, *, inside=lambda: None, backend=None):
    model = torch.nn.Linear(64, 64, device=device)
    while True:
        x = model(torch.randn(4, 8, 512, 64, device=device))
        if backend is None:
            loss = torch.nn.functional.scaled_dot_product_attention(x, x, x).mean()
        else:
            with sdpa_kernel(backend):
                inside()
                seen.append(kernels())
                loss = torch.nn.functional.scaled_dot_product_attention(x, x, x).mean()
                loss.backward()
        yield loss


@pytest.fixture
def beside():
    with ThreadPoolExecutor(1) as thread:
        yield thread


def test_kernels_that_a_prediction_chooses_from_are_its_own(beside):
    reached, go_on = threading.Event(), threading.Event()

    def inside():
        reached.set()
        assert go_on.wait(60)

    seen = []
    prediction = beside.submit(predict, attend, seen=seen, inside=inside, backend=SDPBackend.MATH, steps=2)
    try:
        assert reached.wait(60)
        assert kernels() == ALL
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            go_on.set()
            prediction.result()
            assert kernels() == (True, False, False)
    finally:
        go_on.set()
    assert kernels() == ALL
    assert seen == [(False, False, True)] * 2


def test_kernels_that_a_cell_chooses_from_are_not_those_of_a_prediction_beside_it(beside):
    def peak(thread=None):
        return (thread.submit(predict, attend, seen=[]).result() if thread else predict(attend, seen=[])).peak_allocated

    wanted = peak()
    switches.cell_begins()
    try:
        with sdpa_kernel(SDPBackend.MATH):
            assert peak(beside) == wanted
            assert peak() > wanted  # of the cell itself
    finally:
        switches.cell_ended()
    with sdpa_kernel(SDPBackend.MATH):  # no cell: a thread of the reader's own
        assert peak(beside) > wanted


def allow_tf32():
    cuda.matmul.allow_tf32 = True


def read_bf16_reduction():
    return torch._C._get_cublas_allow_bf16_reduced_precision_reduction()


def forbid_bf16_reduction():
    cuda.matmul.allow_bf16_reduced_precision_reduction = False


def switch_cudnn(name, value):
    return lambda: getattr(cudnn, name), lambda: setattr(cudnn, name, value)


SWITCHED = {
    "attention": (kernels, lambda: cuda.enable_flash_sdp(False)),
    "order": (lambda: torch._C._get_sdp_priority_order(), lambda: torch._C._set_sdp_priority_order([0, 1, 2, 3, 4])),
    "tf32": (lambda: cuda.matmul.allow_tf32, allow_tf32),
    "precision": (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("high")),
    "conv": (lambda: cudnn.conv.fp32_precision, lambda: setattr(cudnn.conv, "fp32_precision", "ieee")),
    "reduction": (read_bf16_reduction, forbid_bf16_reduction),
    "deterministic": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    ),
    "dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
    "benchmark": switch_cudnn("benchmark", True),
    "cudnn.deterministic": switch_cudnn("deterministic", True),
    "cudnn": switch_cudnn("enabled", False),
    "cudnn.tf32": switch_cudnn("allow_tf32", False),
}


@pytest.mark.parametrize("name", SWITCHED)
def test_what_a_prediction_switches_is_put_back(name):
    read, switch = SWITCHED[name]
    seen = []

    def train(device):
        model = torch.nn.Linear(8, 8, device=device)
        for _ in range(2):  # it is back only when all steps are over
            seen.append(read())
            switch()
            yield model(torch.zeros(8, 8, device=device, dtype=torch.float32).to(model.weight.dtype)).sum()

    before = read()
    predict(train, steps=2)
    assert read() == before
    assert seen[0] == before
    assert seen[1] != before
