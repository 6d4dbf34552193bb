"""cuDNN's answers for the backward pass of attention, asked through PyTorch's CUDA build (cuDNN 9.20; torch 2.13.0)."""

import pytest
import torch

from memlab.vgpu import find_card
from memlab.vgpu.scratch.rule import RESULT
from memlab.vgpu.scratch.table import scratch

# batch, heads, heads of keys, queries, width, keys; bytes on H100 and on A100
ANSWERS = [
    (4, 16, 16, 1024, 64, 1024, 17039616, 33816704),
    (4, 16, 16, 1024, 128, 1024, 33816832, 67371136),
    (2, 12, 12, 333, 64, 333, 2078176, 4142432),
    (2, 12, 12, 128, 64, 128, 798976, 1585280),
    (4, 16, 4, 1024, 64, 1024, 33816832, 50593920),
    (1, 2, 2, 4096, 128, 4096, 4227328, 8421504),
    (4, 16, 16, 1000, 72, 1000, 18688256, 37120128),
    (4, 16, 16, 512, 96, 512, 12714240, 25297024),
    (3, 5, 5, 257, 80, 257, 1249276, 2516348),
    (2, 8, 8, 512, 64, 100, 2130176, 4227200),
    (2, 8, 8, 100, 64, 512, 416256, 842112),
]


def workspace(card, batch, heads, key_heads, length, width, keys):
    with torch.device("meta"):
        query = torch.empty(batch, heads, length, width, dtype=torch.bfloat16)
        key = torch.empty(batch, key_heads, keys, width, dtype=torch.bfloat16)
    operator = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default
    results, size = scratch(find_card(card), operator, (query, query, key, key), ())
    assert results is RESULT
    return size


# The same, and bytes on B200; on RTX 5090 they are those of A100
OF_BLACKWELL = [
    (1, 1, 1, 77, 64, 77, 40628),
    (1, 1, 1, 77, 64, 300, 40628),
    (1, 1, 1, 300, 64, 77, 155952),
    (1, 1, 1, 129, 64, 128, 68484),
    (1, 1, 1, 128, 64, 129, 66176),
    (1, 1, 1, 129, 64, 129, 33540),
    (1, 1, 1, 256, 64, 256, 66560),
    (1, 4, 2, 77, 64, 77, 240976),
    (1, 4, 2, 300, 64, 300, 619328),
    (4, 8, 8, 77, 64, 77, 1296128),
]


@pytest.mark.parametrize("answer", OF_BLACKWELL)
def test_workspaces_on_blackwell_depend_on_the_number_of_tokens(answer):
    *shape, blackwell = answer
    assert workspace("B200", *shape) == blackwell
    assert workspace("RTX 5090", *shape) == workspace("A100-40GB", *shape)


@pytest.mark.parametrize("answer", ANSWERS)
def test_workspaces_are_those_of_cudnn(answer):
    *shape, hopper, ampere = answer
    assert workspace("H100", *shape) == hopper
    assert workspace("A100-40GB", *shape) == ampere


def test_other_cards():
    assert workspace("L4", 2, 12, 12, 333, 64, 333) == 4142432
    assert workspace("B200", 2, 12, 12, 333, 64, 333) == 2077920
    assert workspace("B200", 4, 16, 4, 1024, 64, 1024) == 33816704
