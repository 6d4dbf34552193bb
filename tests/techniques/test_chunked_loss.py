import pytest
import torch
from torch.nn import functional as F

from memlab.errors import BadValue
from memlab.techniques.chunked_loss import chunked_cross_entropy


def example(*shape: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    features = torch.randn(*shape, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 16, dtype=torch.float64, requires_grad=True)
    return features, weight, torch.randint(50, shape)


@pytest.mark.parametrize("chunks", [1, 2, 7, 8, 100])
@pytest.mark.parametrize("shape", [(21,), (3, 7)])
def test_loss_and_gradients_are_those_of_the_plain_loss(shape, chunks):
    features, weight, targets = example(*shape)
    plain = F.cross_entropy(F.linear(features, weight).flatten(0, -2), targets.flatten())
    chunked = chunked_cross_entropy(features, weight, targets, chunks=chunks)
    torch.testing.assert_close(chunked, plain)
    expected = torch.autograd.grad(plain, (features, weight))
    torch.testing.assert_close(torch.autograd.grad(chunked, (features, weight)), expected)


def test_targets_that_are_ignored_do_not_count():
    features, weight, targets = example(3, 7)
    targets[1, 2:] = -100
    plain = F.cross_entropy(F.linear(features, weight).flatten(0, -2), targets.flatten())
    torch.testing.assert_close(chunked_cross_entropy(features, weight, targets, chunks=4), plain)


def test_no_logits_are_kept_for_backward():
    features, weight, targets = example(64)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.shape), lambda _: None):
        chunked_cross_entropy(features, weight, targets)
    assert all(50 not in shape for shape in saved if shape != weight.shape)


@pytest.mark.parametrize("chunks", [0, -1, 2.5])
def test_other_numbers_of_chunks_are_refused(chunks):
    with pytest.raises(BadValue, match="not a number of pieces: give 1"):
        chunked_cross_entropy(*example(4), chunks=chunks)


def test_the_loss_of_logits_in_16_bits_can_be_computed_in_float32():
    features, weight, targets = example(3, 7)
    features, weight = (tensor.detach().to(torch.bfloat16).requires_grad_() for tensor in (features, weight))
    plain = F.cross_entropy(F.linear(features, weight).float().flatten(0, -2), targets.flatten())
    torch.testing.assert_close(chunked_cross_entropy(features, weight, targets, chunks=2, dtype=torch.float32), plain)
