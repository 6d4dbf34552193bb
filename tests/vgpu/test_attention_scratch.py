"""The allocations of attention and softmax beside their results, counted by hand from PyTorch's sources."""

import pytest
import torch

from memlab import predict
from memlab.vgpu import current_prediction, fake_kernels, find_card
from memlab.vgpu.scratch import cublas
from memlab.vgpu.scratch.rule import RESULT, Result, Workspace
from memlab.vgpu.scratch.table import scratch

aten = torch.ops.aten
BF16, F32 = torch.bfloat16, torch.float32
MIB = 2**20


def tensor(*shape, dtype=F32):
    return torch.empty(shape, dtype=dtype, device="meta")


def heads_inside(batch, heads, length, width, dtype=F32):
    """As attention gets its queries from a Linear: (batch, heads, length, width) over (batch, length, heads, width)."""
    return tensor(batch, length, heads, width, dtype=dtype).transpose(1, 2)


def steps(operator, *args, gpu="H100", out=None):
    return scratch(find_card(gpu), operator, args, out)


def backward(shape, keys, *, dtype, gpu="A100-40GB", flash=False):
    query, key = heads_inside(*shape, dtype=dtype), heads_inside(*shape[:2], keys, shape[3], dtype=dtype)
    if flash:
        operator, args = aten._scaled_dot_product_flash_attention_backward.default, (query, query, key, key, query)
    else:
        operator, args = aten._scaled_dot_product_efficient_attention_backward.default, (query, query, key, key)
    return steps(operator, *args, gpu=gpu)


def test_softmax_backward_multiplies_gradient_and_result_first():
    gradient = tensor(4, 8, 256, 256)
    taken = steps(aten._softmax_backward_data.default, gradient, gradient, -1, F32)
    assert taken == (RESULT, 4 * 4 * 8 * 256 * 256)


def test_a_safe_softmax_looks_for_rows_of_minus_infinity():
    scores = tensor(4, 8, 256, 256)
    assert steps(aten._safe_softmax.default, scores, -1, out=scores) == (RESULT, 4 * 8 * 256 * 256, 4 * 8 * 256, 4)


def test_dropout_makes_its_mask_first():
    assert steps(aten.native_dropout.default, tensor(8), 0.1, True) == (Result(1), Result(0))


def test_float32_efficient_backward_sums_rows_twice_and_has_a_workspace():
    # 4 batches of 8 heads, 256 queries of 64: product and sums in float32; 4 tiles of 64 x 64, each with 16 bytes.
    sums = 4 * 4 * 8 * 256
    product = sums * 64
    workspace = 32 * 4 * (16 + 4 * 64 * 64)
    assert backward((4, 8, 256, 64), 256, dtype=F32) == (RESULT, product, sums, sums, -sums, -product, workspace)


def test_efficient_backward_has_gradients_for_each_query_head_of_a_group():
    query, key = heads_inside(2, 8, 64, 64, dtype=BF16), heads_inside(2, 2, 64, 64, dtype=BF16)
    taken = steps(aten._scaled_dot_product_efficient_attention_backward.default, query, query, key, key)
    rows = 2 * 8 * 64
    assert taken == (RESULT, 2 * rows * 64, 2 * rows * 64, 4 * rows, 16 * (16 + 4 * 64 * 64))


@pytest.mark.parametrize(
    ("gpu", "dtype", "width", "nbytes"),
    [
        ("T4", F32, 128, 4 * 2 * (16 + 4 * 64 * 64)),  # 4 x 2 tiles of 64 x 64 for 200 queries
        ("A100-40GB", F32, 128, 2 * 2 * (16 + 4 * 128 * 64)),
        ("T4", torch.float16, 128, 2 * 2 * (16 + 4 * 128 * 64)),
        ("A100-40GB", BF16, 128, 2 * (16 + 4 * 128 * 128)),
        ("L4", BF16, 96, 2 * 2 * (16 + 4 * 128 * 64)),
        # Keys and values are summed too: 256 (4 times 64) rows of 128, or of 256.
        ("L4", BF16, 128, 4 * 2 * (16 + 4 * 64 * 64) + 2 * 4 * 256 * 128),
        ("A100-40GB", BF16, 256, 2 * 4 * (16 + 4 * 128 * 64) + 2 * 4 * 256 * 256),
    ],
)
def test_the_workspace_of_efficient_backward_follows_the_kernel(gpu, dtype, width, nbytes):
    assert backward((1, 1, 200, width), 200, dtype=dtype, gpu=gpu)[-1] == nbytes


def test_a_gradient_with_heads_outside_is_copied():
    outside = tensor(2, 3, 77, 64, dtype=BF16)
    inside = heads_inside(2, 3, 77, 64, dtype=BF16)
    nbytes = 2 * 2 * 3 * 77 * 64
    flash = aten._scaled_dot_product_flash_attention_backward.default
    rows = 4 * 2 * 3 * 128
    assert steps(flash, outside, inside, inside, inside, inside) == (nbytes, RESULT, rows, rows * 64)
    assert steps(flash, inside, inside, inside, inside, inside) == (RESULT, rows, rows * 64)
    efficient = aten._scaled_dot_product_efficient_attention_backward.default
    assert steps(efficient, outside, inside, inside, inside)[0] == nbytes


@pytest.mark.parametrize(("width", "rounded"), [(40, 64), (96, 96), (128, 128), (160, 192), (200, 256)])
def test_flash_backward_rounds_the_width_of_a_head(width, rounded):
    taken = backward((1, 2, 100, width), 100, dtype=BF16, flash=True)
    assert taken == (RESULT, 4 * 2 * 128, 4 * 2 * 128 * rounded)


def test_flash_forward_splits_keys_where_the_card_would_be_idle():
    flash = aten._scaled_dot_product_flash_attention.default
    query, key = tensor(1, 8, 1, 64, dtype=BF16), tensor(1, 2, 5000, 64, dtype=BF16)
    # 20 blocks of 256 keys, one part each: sums and results in float32, for 8 queries.
    assert steps(flash, query, key, key) == (Result(0), Result(1), 4 * 20 * 8, 4 * 20 * 8 * 64, RESULT)
    busy = tensor(8, 16, 1024, 64, dtype=BF16)
    assert steps(flash, busy, busy, busy) == (Result(0), Result(1), RESULT)
    assert steps(flash, query, key, key, 0.1) == (Result(0), Result(1), RESULT, 16)


def test_a_wide_half_precision_result_is_summed_in_float32():
    wide = tensor(1, 1, 64, 160, dtype=BF16)
    taken = steps(aten._scaled_dot_product_efficient_attention.default, wide, wide, wide, None, True, out=(wide,))
    assert taken[-1] == 4 * 64 * 160


def test_random_numbers_of_efficient_attention_come_first_where_they_are_on_the_card():
    narrow = tensor(1, 1, 64, 64)
    arguments = (aten._scaled_dot_product_efficient_attention.default, narrow, narrow, narrow, None, True)
    assert steps(*arguments, out=(narrow,)) == (Result(2), Result(3), RESULT)


@pytest.mark.parametrize(("version", "places"), [((2, 13), ("cpu", "cuda")), ((2, 15), ("cuda", "cuda"))])
def test_they_are_on_the_card_since_2_15_and_in_a_graph(version, places, monkeypatch):
    found = []

    def train(device):
        query = torch.zeros(1, 1, 64, 64, device=device)
        for current_prediction.current().capturing in (False, True):
            *_, seed, _ = aten._scaled_dot_product_efficient_attention(query, query, query, None, True)
            found.append(seed.device.type)
        current_prediction.current().capturing = False
        yield None

    monkeypatch.setattr(fake_kernels, "TORCH", version)
    predict(train, gpu="T4", steps=1)
    assert tuple(found) == places


def test_workspaces_of_products_follow_the_version(monkeypatch):
    bias, x, weight = tensor(32), tensor(256, 64), tensor(64, 32)
    own = 8_519_680
    kept, lt = Workspace("cublas", own), Workspace("cublasLt", MIB)
    expected = {(2, 11): ((kept,), (kept, lt)), (2, 13): ((kept,), (kept,)), (2, 15): ((own,), (MIB,))}
    for version, (product, with_bias) in expected.items():
        monkeypatch.setattr(cublas, "TORCH", version)
        assert steps(aten.mm.default, x, weight, gpu="T4") == product
        assert steps(aten.addmm.default, bias, x, weight, gpu="T4") == with_bias
        assert steps(aten.addmm.default, tensor(256, 32), x, weight, gpu="T4") == product
        assert steps(aten.addmm.default, tensor(1), x, tensor(64, 1), gpu="T4") == product


def test_a_matrix_that_cublas_cannot_take_is_copied():
    every_second = torch.empty_strided((256, 64), (128, 2), device="meta")
    assert steps(aten.mm.default, every_second, tensor(64, 32))[0] == 4 * 256 * 64
    sliced = torch.empty_strided((256, 64), (128, 1), device="meta")
    assert len(steps(aten.mm.default, sliced, tensor(32, 64).t())) == 1
