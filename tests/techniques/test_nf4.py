"""Four bits a weight: the published levels, the nearest of them, and a gradient that needs no kept weight."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from memlab.errors import BadValue
from memlab.techniques.nf4 import BLOCK, LEVELS, PAIRS, NF4Linear, pack, unpack

# Appendix E of QLoRA (arXiv 2305.14314).
PUBLISHED = [
    *(-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0),
]


def test_the_levels_are_the_published_ones():
    assert LEVELS.tolist() == pytest.approx(PUBLISHED, abs=1e-6)


def test_each_weight_becomes_the_nearest_level():
    weight = torch.randn(32, 128)
    packed, scales = pack(weight)
    assert (packed.nbytes, packed.dtype) == (weight.numel() // 2, torch.uint8)
    blocks = weight.view(-1, BLOCK)
    nearest = (blocks / scales)[..., None].sub(LEVELS).abs().argmin(-1)
    assert torch.equal(unpack(packed, scales, PAIRS), LEVELS[nearest] * scales)


def test_a_level_stays_what_it_is_and_so_does_zero():
    weight = torch.cat([LEVELS.repeat(4) * 3, torch.zeros(BLOCK)])
    assert torch.equal(unpack(*pack(weight), PAIRS).flatten(), weight)


def test_the_gradient_is_that_of_the_unpacked_weight():
    layer = NF4Linear(nn.Linear(64, 32, bias=False))
    ours = torch.randn(2, 3, 64).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    weight = unpack(layer.packed, layer.scales, layer.pairs).view(layer.shape)
    for x, y in ((ours, layer(ours)), (theirs, F.linear(theirs, weight))):
        y.square().sum().backward()
        assert x.grad is not None
    assert torch.equal(ours.grad, theirs.grad)


def test_a_bias_stays_as_it_is():
    linear = nn.Linear(64, 32)
    layer, x = NF4Linear(linear), torch.randn(3, 64)
    weight = unpack(layer.packed, layer.scales, layer.pairs).view(layer.shape)
    assert torch.equal(layer(x), F.linear(x, weight, linear.bias))
    assert not list(layer.parameters())


def test_the_weight_is_not_kept_for_backward():
    layer, kept = NF4Linear(nn.Linear(256, 256, bias=False)), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        layer(torch.ones(1, 256, requires_grad=True))
    assert sum(kept) < 256 * 256  # bytes: less than one for each weight


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(BadValue, match="32 weights cannot be packed: their number must be a multiple of 64"):
        NF4Linear(nn.Linear(8, 4, bias=False))
