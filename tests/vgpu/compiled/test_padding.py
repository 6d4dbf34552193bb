"""Inductor's padding of a product: decided as on a card, by the clock of the estimate."""

import re
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from memlab import predict
from memlab.units import MIB, parse_bytes
from tests.vgpu.compiled.loops import LOOPS

with warnings.catch_warnings(action="ignore"):  # of the compiler's own files
    from memlab.vgpu.compiled.internals import pad_mm


def head(device, *, rows=4096, width=768, tokens=50_257, dtype=torch.bfloat16):
    weight = nn.Linear(width, tokens, bias=False, device=device, dtype=dtype)

    @torch.compile
    def loss_of(x):
        return weight(x).float().logsumexp(-1).sum()

    while True:
        loss = loss_of(torch.randn(rows, width, device=device, dtype=dtype))
        loss.backward()
        weight.zero_grad()
        yield loss


@pytest.fixture
def decided(monkeypatch):
    """The sizes of what was timed, and whether it is padded."""
    found = {}
    real = pad_mm.is_padded_faster

    def noted(key, *seconds):
        result = real(key, *seconds)
        found[key] = result
        return result

    monkeypatch.setattr(pad_mm, "is_padded_faster", noted)
    return found


def peak(gpu="H200", **settings):
    return predict(partial(head, **settings), gpu=gpu, steps=1).peak_allocated


@pytest.mark.filterwarnings("ignore")
def test_a_head_of_an_odd_vocabulary_is_padded_in_half_precision(decided):
    """As an H200 decided for GPT-2 small, and for a head of 512 tokens all but the gradient of the weight."""
    peak()
    assert list(decided.values()) == [True] * len(decided)
    assert decided
    decided.clear()
    peak(rows=512, width=256)
    assert sorted(decided.values()) == [False, True]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("settings", [{"dtype": torch.float32}, {"tokens": 50_304}])
def test_others_are_not(decided, settings):
    peak(**settings)
    assert not any(decided.values())


@pytest.mark.filterwarnings("ignore")
def test_it_is_decided_anew_for_each_card(decided, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    first = peak()
    many = len(decided)
    peak(gpu="T4", dtype=torch.float16)
    assert len(decided) > many
    assert peak() == first
    assert not any(tmp_path.rglob("*pad*"))


@pytest.mark.filterwarnings("ignore")
def test_what_timing_takes_in_the_first_run_of_a_machine_is_told_where_it_is_the_most():
    """PyTorch's CUDA build on the stand-in for a T4, with empty caches: 1,000,006,656 bytes, of 954 MiB."""
    loop = LOOPS["loss of 50257 classes"]
    first, again = (predict(loop, gpu="T4", steps=2) for _ in range(2))  # the second finds the code in PyTorch's cache
    (said,) = first.notes
    told = re.match(r"The first run on a machine takes about (\d+ MiB) for a moment: ", said)
    assert parse_bytes(told[1]) == pytest.approx(1_000_006_656, rel=0.02)  # cuBLAS's workspace is of the version
    assert first == again
    assert first.peak_allocated < 954 * MIB
    assert predict(LOOPS["gpt"], gpu="T4", steps=2).notes == ()  # whose products are of whole pieces
