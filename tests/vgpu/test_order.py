"""In which order blocks are taken: it decides addresses, and so what is reserved."""

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlab.allocator import CachingAllocator
from memlab.vgpu.scratch import cublas
from tests.vgpu.once import in_a_prediction


def taken(monkeypatch, prepare, work):
    """The sizes that ``work(*prepare(device))`` takes blocks for, in order."""
    sizes, plain = [], CachingAllocator.allocate

    def allocate(self, asked):
        sizes.append(asked)
        return plain(self, asked)

    def both(device):
        prepared = prepare(device)
        sizes.clear()
        work(*prepared)
        return list(sizes)

    monkeypatch.setattr(CachingAllocator, "allocate", allocate)
    monkeypatch.setattr(cublas, "TORCH", (2, 13))
    return in_a_prediction(both)[0]


def test_autocast_casts_the_last_argument_first(monkeypatch):
    def linear(x, weight, bias):
        with torch.autocast("cuda", torch.float16):
            F.linear(x, weight, bias)

    def prepare(device):
        return torch.zeros(64, 32, device=device), torch.zeros(16, 32, device=device), torch.zeros(16, device=device)

    casts, result, workspace = [2 * 16, 2 * 16 * 32, 2 * 64 * 32], 2 * 64 * 16, 8_519_680
    assert taken(monkeypatch, prepare, linear) == [*casts, result, workspace]


def attend(query, key, mask):
    with sdpa_kernel(SDPBackend.MATH):
        F.scaled_dot_product_attention(query, key, key, attn_mask=mask)


def test_math_attention_takes_what_cuda_takes_and_adds_the_mask_in_place(monkeypatch):
    def prepare(device):
        query, key = (torch.zeros(2, 2, length, 64, device=device) for length in (32, 64))
        return query, key, torch.zeros(2, 1, 32, 64, dtype=torch.bool, device=device)

    mask, query, key, scores = [4, 4, 4 * 2 * 32 * 64], 4 * 4 * 32 * 64, 4 * 4 * 64 * 64, 4 * 4 * 32 * 64
    softmax = [scores, 4 * 32 * 64, 4 * 32, 4]  # and what looks for rows of minus infinity
    sizes = taken(monkeypatch, prepare, attend)
    assert sizes == [*mask, query, key, scores, 8_519_680, *softmax, query]


def test_math_attention_in_half_precision_computes_in_float32(monkeypatch):
    def prepare(device):
        query, key = (torch.zeros(2, 2, length, 64, device=device, dtype=torch.float16) for length in (32, 64))
        return query, key, None

    query, key, scores = 4 * 4 * 32 * 64, 4 * 4 * 64 * 64, 4 * 4 * 32 * 64
    softmax = [scores, 4 * 32 * 64, 4 * 32, 4]
    half = [scores // 2, query, query // 2]  # the weights, which nobody asked for; the result in both precisions
    sizes = taken(monkeypatch, prepare, attend)
    assert sizes == [query, key, key, query, key, scores, 8_519_680, *softmax, *half]


def test_a_grouped_product_takes_float32():
    def train(device):
        x, weight = (torch.zeros(*shape, device=device, requires_grad=True) for shape in ((64, 32), (4, 32, 48)))
        ends = torch.tensor([16, 32, 48, 64], dtype=torch.int32, device=device)
        out = torch.ops.aten._grouped_mm(x, weight, offs=ends)
        out.square().sum().backward()
        return out.dtype, out.shape, x.grad.shape, weight.grad.shape

    assert in_a_prediction(train)[0] == (torch.float32, (64, 48), (64, 32), (4, 32, 48))
