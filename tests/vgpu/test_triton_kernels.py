"""Triton kernels in predictions, with Triton and without."""

import importlib.util
import sys

import pytest
import torch

from memlab import predict
from memlab.units import MIB

INSTALLED = importlib.util.find_spec("triton") is not None
LIBRARY = """
import torch
import triton
import triton.language as tl

SIXTEEN = tl.constexpr(16)

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, 2 * tl.load(x + places, mask=places < n), mask=places < n)

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    pass

def doubled(x, kernel=double, **options):
    out = torch.empty_like(x)
    n = x.numel()
    kernel[(triton.cdiv(n, SIXTEEN.value),)](x, out, n, **options)
    return out

def sizes():
    return triton.next_power_of_2(50_257), triton.next_power_of_2(1024), triton.cdiv(7, 2)
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A module that launches Triton kernels; the loops import it."""
    (tmp_path / "doubling.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("doubling", None)


def train(device, *, kernels=1):
    import doubling

    assert doubling.sizes() == (65536, 1024, 4)
    layer = torch.nn.Linear(1024, 1024, bias=False, device=device)
    while True:
        x = layer(torch.ones(1024, 1024, device=device))
        for _ in range(kernels):
            x = doubling.doubled(x, BLOCK=1024)
        x = doubling.doubled(x, doubling.tuned)
        yield


@pytest.mark.filterwarnings("ignore")
def test_a_launch_allocates_nothing_and_moves_its_bytes(library):
    one, three = predict(train, steps=2), predict(train, steps=2, kernels=3)
    assert one.peak_allocated == three.peak_allocated
    a_tensor = 4 * MIB
    assert one.peak_allocated >= 4 * a_tensor  # the weight, an input, and two at a time
    assert three.likely_seconds - one.likely_seconds >= 2 * 2 * a_tensor / 320e9  # read and written, by a T4


@pytest.mark.filterwarnings("ignore")
def test_a_kernel_needs_no_module_around_it(library):
    def alone(device):
        import doubling

        while True:
            doubling.doubled(torch.ones(1024, 1024, device=device), BLOCK=1024)
            yield

    assert predict(alone, steps=1).peak_allocated == 8 * MIB


@pytest.mark.skipif(INSTALLED, reason="there is a Triton")
@pytest.mark.filterwarnings("ignore")
def test_without_triton_it_is_there_in_predictions_alone(library):
    predict(train, steps=1)
    assert "triton" not in sys.modules
    assert importlib.util.find_spec("triton") is None
    assert not torch.utils._triton.has_triton_package()
    with pytest.raises(RuntimeError, match="double is a Triton kernel, and Triton is not installed: it can be pred"):
        sys.modules["doubling"].doubled(torch.ones(4), BLOCK=4)


@pytest.mark.skipif(INSTALLED, reason="there is a Triton")
def test_a_loop_of_the_readers_machine_finds_none():
    with pytest.raises(ModuleNotFoundError, match="triton"):
        import triton  # noqa: F401
