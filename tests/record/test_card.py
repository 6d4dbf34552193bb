from types import SimpleNamespace

import pytest
import torch

from tests.record.card import facts, set_allocator


@pytest.fixture
def card(monkeypatch):
    figures = SimpleNamespace(total_memory=2**34, major=7, minor=5, multi_processor_count=40)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: figures)


def test_a_card_is_told_of_by_its_figures(card):
    assert facts(torch.device("cuda:0"))["capability"] == [7, 5]
    assert facts(torch.device("cpu")) == {}


def test_a_cudnn_that_pytorch_refuses_does_not_end_a_recording(card, monkeypatch):
    def refuses():
        raise RuntimeError("cuDNN version incompatibility: built with (9, 20, 0)\nmore words")

    monkeypatch.setattr(torch.backends.cudnn, "version", refuses)
    assert facts(torch.device("cuda:0"))["cudnn"] == "cuDNN version incompatibility: built with (9, 20, 0)"


def test_the_allocator_is_set_by_the_name_that_is_not_deprecated(card, monkeypatch):
    given = []
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", given.append, raising=False)
    monkeypatch.delattr(torch.cuda.memory, "_set_allocator_settings")
    set_allocator(torch.device("cuda:0"), "expandable_segments:True")
    assert given == ["expandable_segments:True"]
