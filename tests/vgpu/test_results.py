"""Remembered results are those that would be worked out."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F

from memlab import predict
from memlab.vgpu import find_card, results
from memlab.vgpu.current_prediction import Prediction
from memlab.vgpu.internals import with_device
from memlab.vgpu.memory import VirtualMemory
from memlab.vgpu.mode import VirtualMode
from memlab.vgpu.names import CARD, SLOT
from tests.vgpu.test_bytes import train_gpt
from tests.vgpu.test_features import LOOPS


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    monkeypatch.setattr(results, "_answers", results.Generations())


@pytest.mark.parametrize("train", [train_gpt, *LOOPS])
def test_the_second_prediction_equals_the_first(train):
    first = predict(train)
    known = len(results._answers)
    second = predict(train)
    assert known > 0
    assert second.events == first.events
    assert second.peak_reserved == first.peak_reserved


@pytest.mark.parametrize("train", [train_gpt, *LOOPS])
def test_without_memory_the_bytes_are_the_same(train, monkeypatch):
    remembered = predict(train)
    monkeypatch.setattr("memlab.vgpu.mode.remembered", lambda mode, func, args, kwargs, work_out: work_out())
    assert predict(train).events == remembered.events


def test_views_share_their_storage_and_results_do_not():
    seen = []

    def train(device):
        for _ in range(2):
            x = torch.ones(64, 64, device=device)
            view, twice, result = x.t(), x.view(-1)[1:], x * 2
            assert view._base is None or view._base is x
            shared = [x.untyped_storage() is other.untyped_storage() for other in (view, twice, result, x.add_(1))]
            seen.append((shared, view.stride(), twice.storage_offset(), F.pad(x, [0, 1]).shape))
            yield

    predict(train, steps=2)
    assert seen[0] == seen[1] == ([True, True, False, True], (1, 64), 1, (64, 65))


def test_views_in_inference_mode_are_what_they_are_views_of():
    seen = []

    def train(device):
        outside = torch.ones(64, 64, device=device)
        for _ in range(2):
            with torch.inference_mode():
                inside = outside * 2
                tensors = outside[:3], outside.t(), inside[:3], inside.t()
            seen.append([tensor.is_inference() for tensor in tensors])
            yield outside[:3].sum() + torch.nn.Parameter(outside[:3]).sum()

    predict(train, steps=2)
    assert seen == [[False, False, True, True]] * 2


def test_the_parts_of_a_split_are_remembered_as_views():
    seen = []

    def train(device):
        for _ in range(2):
            x = torch.ones(6, 4, device=device)
            parts = x.chunk(3)
            shared = [part.untyped_storage() is x.untyped_storage() for part in parts]
            seen.append((shared, [part.storage_offset() for part in parts], parts[0].shape))
            yield

    predict(train, steps=2)
    assert seen[0] == seen[1] == ([True] * 3, [0, 8, 16], (2, 4))
    split = id(torch.ops.aten.split.Tensor)
    assert [build is not None for key, build in results._answers.items() if key[0] == split] == [True]


def test_what_is_written_into_a_given_tensor_is_remembered_but_for_one_of_another_size():
    seen = []

    def train(device):
        x = torch.ones(3, 3, device=device)
        for _ in range(3):
            fitting, empty = torch.empty(3, 3, device=device), torch.empty(0, device=device)
            products = torch.mm(x, x, out=fitting), torch.mm(x, x, out=empty)
            seen.append((products[0] is fitting, products[1] is empty, empty.shape, empty.untyped_storage().nbytes()))
            yield

    predict(train, steps=3)
    assert seen == [(True, True, (3, 3), 36)] * 3
    product = id(torch.ops.aten.mm.out)
    assert [answer.build is not None for key, answer in results._answers.items() if key[0] == product] == [True, False]


def test_equal_numbers_of_different_types_are_told_apart():
    dtypes = []

    def train(device):
        x = torch.ones(4, dtype=torch.int64, device=device)
        dtypes.extend((x * number).dtype for number in (1, 1.0, True, 1))
        yield

    predict(train, steps=1)
    assert dtypes == [torch.int64, torch.float32, torch.int64, torch.int64]


def test_the_default_dtype_is_part_of_the_question():
    def train(device, *, dtype):
        torch.set_default_dtype(dtype)
        whole = torch.arange(5000, device=device) / 2
        norm = torch.nn.RMSNorm(4096).to(device)
        assert norm.weight.dtype == whole.dtype == dtype
        yield norm(torch.empty(3, 4096, device=device)).sum()

    half, single = (predict(train, steps=1, dtype=dtype) for dtype in (torch.float16, torch.float32))
    assert half.peak_allocated < single.peak_allocated
    assert predict(train, steps=1, dtype=torch.float16).events == half.events


def test_a_fake_tensor_made_fast_is_one_made_by_its_class():
    card = find_card("T4")
    mode = VirtualMode(Prediction(card, VirtualMemory(card)))
    for dtype, device in ((torch.float32, CARD), (torch.int64, torch.device("cpu"))):
        keys = SLOT if device == CARD else device
        plain = FakeTensor(mode, torch.empty(3, 4, dtype=dtype, device="meta"), keys)
        fast = results.make_fake(mode, torch.empty(3, 4, dtype=dtype, device="meta"), device)
        assert type(fast) is type(plain)
        assert fast.__dict__ == with_device(plain.__dict__, device)
        assert torch._C._dispatch_keys(fast) == torch._C._dispatch_keys(plain)
        assert (fast.shape, fast.dtype, fast.device) == (plain.shape, plain.dtype, device)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(results, "MOST", 50)
    predict(train_gpt)
    assert len(results._answers) <= 100


def test_pytorch_remembers_nothing_beside():
    before = len(FakeTensorMode.cache)
    predict(train_gpt)
    assert len(FakeTensorMode.cache) == before


def test_what_is_asked_for_again_stays(monkeypatch):
    monkeypatch.setattr(results, "MOST", 3)
    answers = results.Generations()
    asked = results.Answer(None, None)
    answers.put(("often",), asked)
    for number in range(20):
        answers.put((number,), results.Answer(None, None))
        assert answers.get(("often",)) is asked
    assert answers.get((0,)) is None
    assert len(answers) <= 6


def test_what_is_moved_from_the_host_is_remembered_with_its_layout(monkeypatch):
    asked = []
    work_out = VirtualMode.dispatch
    monkeypatch.setattr(
        VirtualMode, "dispatch", lambda mode, func, *rest: asked.append(func) or work_out(mode, func, *rest)
    )
    plain = torch.zeros(2, 3, 4, 5)
    moved = [plain, plain.mT, plain[..., 1:], plain[:1].expand(7, 3, 4, 5), plain.half()]
    moved.append(plain.to(memory_format=torch.channels_last))

    def train(device):
        for _ in range(3):
            for tensor in moved:
                there = tensor.to(device)
                assert (there.shape, there.dtype) == (tensor.shape, tensor.dtype)
                assert there.stride() == torch.empty_like(tensor).stride()
            yield 0.0

    assert predict(train).peak_allocated > 0
    moves = [func for func in asked if func is torch.ops.aten._to_copy.default]
    assert len(moves) == len(moved)
