"""The attention kernel that a card runs."""

from contextlib import nullcontext

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlab import predict
from memlab.vgpu import find_card
from memlab.vgpu.attention import choice
from memlab.vgpu.attention.choice import CUDNN, EFFICIENT, FLASH, MATH, choose_attention
from memlab.vgpu.versions import TORCH


def choose(gpu, dtype=torch.float16, *, shape=(2, 4, 128, 64), keys=None, mask=None, **options):
    query = torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)
    key = torch.empty(keys or shape, dtype=dtype, device="meta")
    return choose_attention(find_card(gpu), query, key, key, mask, **options)


@pytest.mark.parametrize(
    ("gpu", "dtype", "expected"),
    [
        ("T4", torch.float16, EFFICIENT),
        ("T4", torch.float32, EFFICIENT),
        ("T4", torch.bfloat16, MATH),
        ("V100", torch.float16, EFFICIENT),
        ("A100-40GB", torch.float16, FLASH),
        ("A100-40GB", torch.bfloat16, FLASH),
        ("A100-40GB", torch.float32, EFFICIENT),
        ("A100-40GB", torch.float64, MATH),
        ("RTX 4090", torch.bfloat16, FLASH),
        ("H100", torch.bfloat16, CUDNN),
        ("B200", torch.bfloat16, CUDNN),
        ("H100", torch.float32, EFFICIENT),
    ],
)
def test_the_card_and_the_precision_choose(gpu, dtype, expected):
    assert choose(gpu, dtype) == expected


def test_what_flash_cannot_do_another_does():
    mask = torch.empty(128, 128, dtype=torch.bool, device="meta")
    assert choose("A100-40GB", mask=mask) == EFFICIENT
    assert choose("A100-40GB", shape=(2, 4, 128, 264)) == EFFICIENT
    assert choose("A100-40GB", shape=(2, 4, 128, 260)) == MATH  # not a multiple of 8
    assert choose("A100-40GB", keys=(2, 4, 64, 64), is_causal=True) == EFFICIENT
    assert choose("A10G", shape=(2, 4, 128, 208)) == EFFICIENT  # sm_86 has no backward for it
    assert choose("A100-40GB", shape=(2, 4, 128, 208)) == FLASH
    assert choose("A100-40GB", shape=(4, 128, 64)) == MATH
    assert choose("A100-40GB", keys=(2, 2, 128, 64)) == MATH
    assert choose("A100-40GB", keys=(2, 2, 128, 64), enable_gqa=True) == FLASH


def test_what_cudnn_takes_follows_the_version(monkeypatch):
    for version, wide, odd_dropout in (((2, 11), CUDNN, CUDNN), ((2, 13), CUDNN, FLASH), ((2, 15), FLASH, FLASH)):
        monkeypatch.setattr(choice, "TORCH", version)
        assert choose("H100", shape=(2, 4, 128, 192)) == wide  # with a backward
        assert choose("H100", dropout_p=0.1) == odd_dropout  # not a sixteenth
    bias = torch.empty(128, 128, dtype=torch.bfloat16, device="meta", requires_grad=True)
    assert choose("H100", mask=bias) == EFFICIENT


def test_efficient_attention_takes_groups_of_queries_since_2_15(monkeypatch):
    for version, expected in (((2, 13), MATH), ((2, 15), EFFICIENT)):
        monkeypatch.setattr(choice, "TORCH", version)
        assert choose("T4", torch.float32, keys=(2, 2, 128, 64), enable_gqa=True) == expected


def test_the_switches_of_torch_are_obeyed():
    try:
        torch.backends.cuda.enable_flash_sdp(False)
        assert choose("A100-40GB") == EFFICIENT
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        assert choose("A100-40GB") == MATH
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
        torch.backends.cuda.enable_mem_efficient_sdp(True)


def test_where_the_formula_is_forbidden_and_no_kernel_can_torchs_error_is_raised():
    fused = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    with sdpa_kernel(fused):
        assert choose("T4", torch.float16) == EFFICIENT
        with pytest.raises(RuntimeError, match=r"^No available kernel\. Aborting execution\.$"):
            choose("T4", torch.bfloat16)


def operators(gpu, precision, **settings):
    def train(device, *, heads=64, masked=False):
        q = torch.ones(2, 4, 128, heads, device=device, dtype=precision, requires_grad=True)
        mask = torch.ones(128, 128, dtype=torch.bool, device=device).tril() if masked else None
        while True:
            loss = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum()
            loss.backward()
            q.grad = None
            yield loss

    trace = predict(train, gpu=gpu, **settings)
    return {event.op for event in trace.events if "attention" in event.op or "bmm" in event.op}


def test_the_chosen_operator_runs_forward_and_backward():
    flash = "aten._scaled_dot_product_flash_attention"
    assert operators("A100-40GB", torch.bfloat16) == {flash, f"{flash}_backward"}
    efficient = "aten._scaled_dot_product_efficient_attention"
    assert operators("T4", torch.float32) == {efficient, f"{efficient}_backward"}
    assert operators("A100-40GB", torch.bfloat16, masked=True) == {efficient, f"{efficient}_backward"}
    cudnn = "aten._scaled_dot_product_cudnn_attention"
    assert operators("H100", torch.bfloat16) == {cudnn, f"{cudnn}_backward"}
    assert operators("T4", torch.bfloat16) == {"aten.bmm"}


def test_an_odd_head_is_padded_for_flash():
    assert operators("A100-40GB", torch.bfloat16, heads=60) >= {"aten._scaled_dot_product_flash_attention"}


def notes_of(shape, dtype, *, gpu="T4", backend=None, beside=0, layers=1, kept=False):
    """The notes of a step that attends, while ``beside`` numbers lie elsewhere; its graph may be kept."""

    def train(device):
        held = torch.empty(beside, device=device)
        query = torch.empty(shape, dtype=dtype, device=device, requires_grad=kept)
        while True:
            with sdpa_kernel(backend) if backend else nullcontext():
                out = query
                for _ in range(layers):
                    out = torch.nn.functional.scaled_dot_product_attention(out, out, out)
            yield
            held.add_(1)

    return predict(train, gpu=gpu).notes


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        (
            (8, 12, 1024, 64),
            torch.bfloat16,
            "in bfloat16 on the T4 (its fused kernels take float16 and float32)",
        ),
        (
            (8, 12, 1024, 60),
            torch.float16,
            "with heads of 60 in float16 (fused kernels take multiples of 8 on the T4)",
        ),
        (
            (96, 1024, 64),
            torch.float16,
            "with 3 dimensions (fused kernels take 4: batch, heads, tokens, size of a head)",
        ),
    ],
)
def test_a_table_of_scores_that_could_be_spared_is_told_with_its_reason(shape, dtype, reason):
    assert notes_of(shape, dtype) == (f"Attention runs unfused {reason}, so the table of scores is in memory",)


@pytest.mark.parametrize(("gpu", "repeats"), [("T4", False), ("T4", True), ("A100-40GB", False)])
def test_heads_that_share_keys_have_a_table_where_flash_attention_does_not_run(gpu, repeats):
    def train(device):
        query = torch.empty(8, 12, 1024, 64, dtype=torch.float16, device=device, requires_grad=True)
        few = torch.empty(8, 4, 1024, 64, dtype=torch.float16, device=device)
        while True:
            keys = few.repeat_interleave(3, dim=1) if repeats else few
            yield torch.nn.functional.scaled_dot_product_attention(query, keys, keys, enable_gqa=not repeats).sum()

    falls_back = gpu == "T4" and not repeats and TORCH < (2, 15)
    notes = predict(train, gpu=gpu).notes
    assert ["12 heads of queries and 4 of keys" in note for note in notes] == [True] * falls_back


def test_nothing_is_told_where_attention_is_fused_or_was_to_be_unfused_or_its_table_is_small():
    shape = (8, 12, 1024, 64)
    assert notes_of(shape, torch.float16) == ()
    assert notes_of(shape, torch.bfloat16, gpu="A100-40GB") == ()
    assert notes_of(shape, torch.bfloat16, backend=SDPBackend.MATH) == ()
    assert notes_of(shape, torch.bfloat16, beside=2**31) == ()  # 384 MiB in float32, beside 8 GiB


@pytest.mark.parametrize("kept", [True, False])
def test_small_tables_are_told_where_those_of_all_layers_live_at_once(kept):
    assert bool(notes_of((8, 12, 1024, 64), torch.bfloat16, beside=2**31, layers=3, kept=kept)) == kept
