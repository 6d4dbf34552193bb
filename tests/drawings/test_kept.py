"""The tensors that autograd keeps of a chain of layers, and those that share memory."""

import pytest
import torch
from torch import nn

from memlab import drawings
from memlab.drawings.kept import chain_of

X = torch.randn(2, 4, 8, 8)


def chain(activation):
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), activation, nn.Conv2d(4, 4, 3, padding=1))


@pytest.mark.parametrize(
    ("activation", "memories", "kept", "copies"),
    [
        (nn.ReLU(), (0, 1, 2, 3, 4), {0, 1, 3}, set()),
        (nn.ReLU(inplace=True), (0, 1, 2, 2, 3), {0, 1, 2}, set()),
        (nn.LeakyReLU(), (0, 1, 2, 3, 4), {0, 1, 2, 3}, set()),
        (nn.LeakyReLU(inplace=True), (0, 1, 2, 2, 3), {0, 1, 2}, set()),
        (nn.SiLU(inplace=True), (0, 1, 2, 2, 3), {0, 1, 2}, {2}),
    ],
)
def test_what_is_kept(activation, memories, kept, copies):
    found = chain_of(chain(activation), X)
    assert found.memories == memories
    assert (found.kept, found.copies) == (kept, copies)
    assert found.count == len(kept) + len(copies)


def test_the_first_layer_may_work_in_place_and_the_input_is_untouched():
    before = X.clone()
    assert chain_of(nn.Sequential(nn.LeakyReLU(inplace=True)), X).memories == (0, 0)
    assert torch.equal(X, before)


def test_each_chain_has_a_row_and_its_number():
    chains = {"ReLU": chain(nn.ReLU()), "SiLU in place": chain(nn.SiLU(inplace=True))}
    picture = drawings.kept(chains, X, title="a title")
    assert picture.sentence == "a title"
    texts = [text.get_text() for text in picture.axes[0].texts]
    assert {"ReLU", "SiLU in place", "keeps 3", "keeps 4", "copy"} <= set(texts)
    assert picture.png().startswith(b"\x89PNG")
