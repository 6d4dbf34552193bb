"""Operators whose kernels take more than their results: of a tensor that is not contiguous often a copy."""

import pytest
import torch
from torch.nn import functional as F

from memlab.vgpu.versions import TORCH
from tests.vgpu.once import seen

ROWS = torch.Size((1024, 768))


def across(device):
    """Transposed."""
    return torch.rand(768, 1024, device=device).t()


def gaps(device):
    """Every second number."""
    return torch.rand(1024, 1536, device=device)[:, ::2]


def repeated(device):
    """The same row again and again."""
    return torch.rand(768, device=device).expand(ROWS)


def aside(device):
    """Not at the beginning of its storage."""
    return torch.rand(1024 * 768 + 3, device=device)[3:].view(ROWS)


def whole(device):
    return torch.rand(ROWS, device=device)


def many(device):
    """More rows than blocks of threads."""
    return torch.rand(4001, 500, device=device)


def one(device):
    """One row, with gaps."""
    return torch.rand(800_000, device=device)[::2]


def long(device):
    """Rows that are sorted together, with gaps."""
    return torch.rand(40, 12_000, device=device)[:, ::2]


def gradient(work):
    """The backward pass, too."""

    def run(x):
        x = x.detach().requires_grad_()
        result = work(x)
        result.sum().backward()

    return run


def sixteens(x):
    return torch.full((64,), 16, device=x.device)


# What the operator took with PyTorch's CUDA build on the stand-in for a T4, at most, beside its argument.
TAKEN = [
    (lambda x: x.topk(5), across, 3_207_168),
    (lambda x: x.topk(5), many, 6_501_376),
    (lambda x: x.topk(5, 0), lambda device: many(device).t(), 14_503_424),
    (lambda x: x.topk(5000), long, 11_283_456),
    (lambda x: x.topk(5000, sorted=False), long, 3_360_256),
    (lambda x: x.bfloat16().topk(5), one, 922_112),
    (lambda x: x.kthvalue(3), across, 3_158_016),
    (lambda x: x.median(1), gaps, 3_158_016),
    (lambda x: x.median(), across, 28_606_976),
    (lambda x: x.median(), gaps, 28_606_976),
    (lambda x: x.nanmedian(), repeated, 28_606_976),
    (lambda x: x.mode(1), across, 3_158_016),
    (lambda x: x.mode(0), whole, 3_154_944),
    (lambda x: x.sort(), long, 11_616_768),
    (lambda x: x.sort(), one, 14_555_136),
    (lambda x: x.sort(0), lambda device: long(device).t(), 11_616_768),
    (lambda x: x.cumsum(1), across, 6_291_456),
    (lambda x: x.cumsum(0), one, 3_202_560),
    (lambda x: x.cumsum(1, dtype=torch.float64), across, 18_874_368),
    (lambda x: x.cumsum_(1), across, 6_291_456),
    (lambda x: x.half().cumprod(1), across, 4_718_592),
    (lambda x: x.logcumsumexp(1), gaps, 6_291_456),
    (lambda x: x.logcumsumexp(0), one, 3_202_560),
    (lambda x: x.cummax(1), repeated, 12_582_912),
    (lambda x: x.cummin(0), across, 12_582_912),
    (lambda x: x.roll(1, 0), across, 6_291_456),
    (gradient(lambda x: x.roll(1, 0)), whole, 9_438_208),
    (lambda x: x.max(), across, 3_147_264),
    (lambda x: x.min(), gaps, 3_147_264),
    (lambda x: x.aminmax(), across, 3_148_288),
    (lambda x: x.argmax(), across, 3_148_288),
    (lambda x: x.argmin(), gaps, 2_560),
    (lambda x: x.max(0), aside, 9_216),
    (lambda x: torch.searchsorted(x[0].contiguous(), x), across, 9_440_256),
    (lambda x: torch.searchsorted(x, x[:, :5]), across, 3_207_168),
    (lambda x: torch.bucketize(x, x[0].double()), gaps, 15_734_784),
    (lambda x: torch.ops.aten._safe_softmax(x, -1), across, 6_291_456),
    (lambda x: x.histc(10), across, 3_148_800),
    (lambda x: x.histc(), across, 3_148_800),
    (lambda x: x.renorm(2, 0, 1.0), whole, 3_149_824),
    (lambda x: x.half().renorm(2, 0, 1.0), whole, 3_151_872),
    (lambda x: torch.cdist(x, x[:30], p=1), across, 3_360_768),
    (gradient(lambda x: torch.cdist(x, x[:30], p=1)), across, 124_811_264),
    (gradient(lambda x: torch.cdist(x[:20], x.detach(), p=3)), whole, 86_734_336),
    (gradient(lambda x: torch.cdist(x, x[:30], p=0)), whole, 6_507_520),
    (lambda x: torch.dist(x, x), whole, 3_147_264),
    (lambda x: torch.dist(x, x[0]), across, 3_147_264),
    (lambda x: torch.ldexp(x, x), whole, 6_291_456),
    (lambda x: torch.ldexp(x, x[0]), whole, 3_148_800),
    (lambda x: torch.ldexp(x, x.int()), whole, 6_291_456),
    (lambda x: torch.normal(x, 1.0), whole, 6_291_456),
    (lambda x: torch.normal(x), across, 6_291_456),
    (lambda x: x.multinomial(5), across, 6_354_944),
    (lambda x: x.multinomial(7), many, 14_601_216),
    (lambda x: x.multinomial(1), whole, 3_155_968),
    (lambda x: x.multinomial(5, replacement=True), whole, 9_478_144 if TORCH < (2, 15) else 6_332_416),
    (lambda x: x[0].multinomial(50, replacement=True), whole, 10_752 if TORCH < (2, 15) else 7_680),
    (lambda x: x.long().flatten()[::2].bincount(minlength=9), whole, 9_439_744),
    (lambda x: x.long().flatten().bincount(x.half().flatten(), minlength=9), whole, 14_158_848),
    (gradient(lambda x: F.mse_loss(x, x.detach())), across, 9_438_208),
    (gradient(lambda x: F.smooth_l1_loss(x, x.detach())), across, 9_438_208),
    (gradient(lambda x: F.huber_loss(x, x.detach())), across, 6_292_992),
    (gradient(lambda x: F.nll_loss(x, torch.zeros_like(x[:, 0], dtype=torch.int64))), across, 6_301_696),
    (gradient(F.logsigmoid), across, 9_438_208),
    (gradient(lambda x: torch.segment_reduce(x, "sum", lengths=sixteens(x), unsafe=True)), across, 6_688_768),
    (gradient(lambda x: torch.segment_reduce(x, "max", offsets=sixteens(x).cumsum(0), unsafe=True)), whole, 3_534_848),
]


def taken(work, given, device):
    """Return how far the allocator's peak is above the argument in the second of two calls, in bytes."""
    x = given(device)
    work(x)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work(x)
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize(("work", "given", "expected"), TAKEN)
def test_it_takes_what_cuda_takes(work, given, expected):
    assert seen(lambda device: taken(work, given, device)) == expected
