import pytest
import torch

from memlab.nets import MLP


@pytest.mark.parametrize(("depth", "width"), [(1, 3), (5, 16)])
def test_the_parameters_are_those_of_the_formula(depth, width):
    assert sum(p.numel() for p in MLP(depth, width).parameters()) == depth * (width**2 + width)


def test_a_block_is_linear_then_relu():
    model, x = MLP(2, 8), torch.randn(4, 8)
    expected = x
    for linear, _ in model.blocks:
        expected = (expected @ linear.weight.T + linear.bias).clamp(min=0)
    torch.testing.assert_close(model(x), expected)
    assert model(x).shape == x.shape


def test_a_block_keeps_one_tensor():
    model, x = MLP(6, 8), torch.randn(4, 8)
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.setdefault(t.untyped_storage()._cdata, t), lambda t: t
    ):
        output = model(x)
    assert len(kept.keys() - weights) == 6 + 1  # the inputs of all blocks, and the output of the last
    assert output.untyped_storage()._cdata in kept
