"""Indices of the host, of 32 bits, of several shapes, and masks: what a card makes of them before it looks up."""

import pytest
import torch

from memlab import predict

COUNT = 2**17
HOST = (torch.arange(COUNT) * 7) % 1000
MASK = HOST[:1024] % 3 == 0


def loop(work):
    def train(device):
        weight = torch.nn.Parameter(torch.rand(1024, 16, device=device))
        while True:
            loss = work(weight * 2).sum()
            loss.backward()
            weight.grad = None
            yield loss

    return train


def written(index, value):
    def work(x):
        zeros = torch.zeros_like(x)
        zeros[index(x)] = value(x)
        return x * zeros

    return work


# What two steps took at most with PyTorch's CUDA build on the stand-in for a T4.
TAKEN = {
    "read by the host": (lambda x: x[HOST], 14_864_896),
    "read by the host twice": (lambda x: x[HOST, HOST % 16], 7_000_576),
    "read by the host in rows and columns": (lambda x: x[HOST[:1024, None], HOST[:128] % 16], 7_000_576),
    "read in rows and columns": (lambda x: x[HOST[:1024, None].to(x.device), HOST[:128].to(x.device) % 16], 7_009_792),
    "read by 32 bits": (lambda x: x[HOST.int().to(x.device), 0], 7_463_424),
    "read by 32 bits of the host": (lambda x: x[HOST.int(), 0], 6_939_136),
    "read by a mask of the host": (lambda x: x.view(-1, 1).expand(-1, 64)[(HOST[:16384] % 3 == 0)], 5_932_032),
    "written by the host": (written(lambda x: HOST, lambda x: 3), 1_246_208),
    "written by both": (written(lambda x: (HOST.to(x.device), HOST % 16), lambda x: 3), 2_294_784),
    "written by a mask of the host": (written(lambda x: MASK, lambda x: torch.ones(16, device=x.device)), 262_656),
    "added by the host": (lambda x: x.index_put((HOST,), x[0], accumulate=True), 14_929_920),
    "added by 32 bits": (lambda x: x.index_put((HOST.int().to(x.device),), x[0], accumulate=True), 15_454_208),
}


@pytest.mark.parametrize(("work", "expected"), TAKEN.values(), ids=TAKEN)
def test_it_takes_what_cuda_takes(work, expected):
    assert predict(loop(work), gpu="T4", steps=2).peak_allocated == expected


def test_with_deterministic_algorithms_indices_are_sorted_where_they_are_written_to():
    def train(device):
        torch.use_deterministic_algorithms(True)
        yield from loop(written(lambda x: HOST.to(x.device), lambda x: torch.ones(16, device=x.device)))(device)

    assert predict(train, gpu="T4", steps=2).peak_allocated == 15_979_008
