"""The tensors that checkpointing keeps, its cost, and that it changes nothing else."""

import math
from functools import cache

import pytest
import torch

from memlab.errors import BadValue
from memlab.nets import GPT, MLP
from memlab.run import measure
from memlab.trace import Category
from tests.device import DEVICE, counted_by_hand

FLOAT = 4


def mlp_step(checkpoint_every):
    torch.manual_seed(0)
    model = MLP(7, 16, checkpoint_every=checkpoint_every)
    return model, model(torch.randn(32, 16)).square().mean()


def gpt_step(checkpoint_every):
    torch.manual_seed(0)
    model = GPT(depth=7, width=16, heads=2, context=8, checkpoint_every=checkpoint_every)
    tokens = torch.randint(256, (4, 9))
    return model, model(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("step", [mlp_step, gpt_step])
@pytest.mark.parametrize("checkpoint_every", [1, 2, 3, 7, 100])
def test_the_loss_and_the_gradients_are_those_of_the_plain_run(step, checkpoint_every):
    (plain, expected), (model, loss) = step(0), step(checkpoint_every)
    expected.backward()
    loss.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert (p.grad - q.grad).norm() <= 1e-6 * q.grad.norm()


@pytest.mark.parametrize("spacing", [-1, 1.5, "2", None])
def test_a_bad_spacing_is_named_with_what_is_legal(spacing):
    with pytest.raises(BadValue) as caught:
        MLP(2, 4, checkpoint_every=spacing)(torch.ones(1, 4))
    assert str(caught.value) == f"checkpoint_every={spacing!r} is not a spacing: give 0 (off) or a number of layers."


# Memory. With N layers and a spacing k, backward needs at its worst the N/k inputs that were kept and what
# the k layers of one part keep when they run again: N/k * a + k * A, for a layer with an input of a bytes
# that keeps A bytes itself. The lowest is at k = sqrt(N * a / A). Chen et al., 2016, arXiv:1604.06174.


def train_mlp(device, *, depth=16, width=16, batch_size=2048, checkpoint_every=0):
    model = MLP(depth, width, checkpoint_every=checkpoint_every).to(device)
    optimizer = torch.optim.SGD(model.parameters())
    x = torch.randn(batch_size, width, device=device)
    while True:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def train_gpt(device, *, depth=16, width=16, batch_size=16, context=32, checkpoint_every=0):
    model = GPT(depth=depth, width=width, heads=2, context=context, checkpoint_every=checkpoint_every).to(device)
    tokens = torch.randint(256, (batch_size, context + 1), device=device)
    while True:
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        model.zero_grad()
        yield loss


def kept(trace):
    """The most bytes at any moment that are there for backward: kept by forward, or computed again."""
    kinds = (Category.ACTIVATION, Category.RECOMPUTED)
    return max(map(sum, zip(*(trace.timeline[kind] for kind in kinds if kind in trace.timeline), strict=True)))


@cache
def curve(train, spacings, **settings):
    """The trace at every spacing."""
    return {k: measure(train, device=DEVICE, steps=1, checkpoint_every=k, **settings) for k in spacings}


def falls_then_rises(values):
    bottom = values.index(min(values))
    return values == sorted(values[:bottom], reverse=True) + sorted(values[bottom:])


SIXTEEN = (1, 2, 4, 8, 16)


@counted_by_hand
@pytest.mark.parametrize("bytes_of", [kept, lambda trace: trace.peak_allocated], ids=["kept", "peak"])
def test_sixteen_blocks_give_a_u_curve_with_its_bottom_at_four(bytes_of):
    peaks = {k: bytes_of(trace) for k, trace in curve(train_mlp, SIXTEEN).items()}
    assert min(peaks, key=peaks.get) == 4
    assert falls_then_rises(list(peaks.values()))
    assert peaks[4] < 0.6 * min(peaks[1], peaks[16])


def test_every_point_of_the_curve_is_the_formula():
    tensor = FLOAT * 2048 * 16
    for k, trace in curve(train_mlp, SIXTEEN).items():
        assert kept(trace) == pytest.approx(16 / k * tensor + k * tensor, abs=2 * FLOAT)  # and the loss


@pytest.mark.slow
@counted_by_hand
def test_a_thousand_layers_are_best_near_the_square_root():
    spacings = (8, 16, 32, 64, 125)
    traces = curve(train_mlp, spacings, depth=1000, width=4, batch_size=512)
    for bytes_of in (kept, lambda trace: trace.peak_allocated):
        peaks = {k: bytes_of(trace) for k, trace in traces.items()}
        assert min(peaks, key=peaks.get) == 32  # of these the nearest to sqrt(1000) = 31.6
        assert falls_then_rises(list(peaks.values()))


def gpt_block():
    """``(a, A)``: the bytes of a GPT block's input and of what it keeps, from the traces of two depths."""
    shallow, deep = (kept(measure(train_gpt, device=DEVICE, steps=1, depth=depth)) for depth in (8, 16))
    return FLOAT * 16 * 32 * 16, (deep - shallow) / 8


def test_a_gpt_block_keeps_about_sixteen_times_its_input():
    # Two norms, queries, keys, values, attention, its sum, a four times wider layer before and after GELU.
    a, block = gpt_block()
    assert block / a == pytest.approx(16, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "spacings", "best"), [(16, (1, 2, 4, 8, 16), 1), (64, (1, 2, 3, 4, 8), 2)])
def test_the_bottom_of_a_gpt_is_where_its_blocks_say(depth, spacings, best):
    """Sixteen blocks are best checkpointed each: the U-curve needs blocks that keep little, or very many."""
    a, block = gpt_block()
    peaks = {k: kept(trace) for k, trace in curve(train_gpt, spacings, depth=depth).items()}
    assert min(peaks, key=peaks.get) == best
    assert best == pytest.approx(math.sqrt(depth * a / block), rel=0.1)
    for k, peak in peaks.items():
        assert peak == pytest.approx(depth / k * a + k * block, rel=0.25)
