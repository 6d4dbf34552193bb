import weakref
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu

from memlab import measure, predict
from memlab.errors import BadValue
from memlab.techniques.offload import HostOptimizer, offload_activations

ADAMW = partial(torch.optim.AdamW, lr=1e-2)
WIDTH, ROWS = 512, 4096
WEIGHT, ACTIVATION = 4 * WIDTH * WIDTH, 4 * ROWS * WIDTH  # bytes; both 1 MiB or more
PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def net(width: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())))


def train(device, *, around=nullcontext, make_optimizer=ADAMW, rows=ROWS):
    model = net().to(device)
    optimizer = make_optimizer(model.parameters())
    while True:
        with around():
            loss = model(torch.randn(rows, WIDTH, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def on_host(parameters) -> HostOptimizer:
    return HostOptimizer(parameters, ADAMW)


def most(trace, category: str) -> int:
    return max(trace.timeline.get(category, [0]))


# Activations


def test_activations_leave_the_card():
    plain, offloaded = predict(train), predict(train, around=offload_activations)
    assert most(plain, "activation") >= 8 * ACTIVATION
    assert most(offloaded, "activation") < ACTIVATION
    assert offloaded.peak_allocated < plain.peak_allocated - 6 * ACTIVATION
    assert offloaded.flops == plain.flops


def test_small_tensors_stay():
    plain = predict(train)
    kept = predict(train, around=partial(offload_activations, threshold=ACTIVATION + 1))
    assert most(kept, "activation") == most(plain, "activation")
    moved = predict(train, around=partial(offload_activations, threshold=ACTIVATION))
    assert most(moved, "activation") < ACTIVATION


def test_weights_stay_which_save_on_cpu_moves():
    """A Linear whose weight is all that backward needs: the input has a gradient, the weight does not."""

    def train_linear(device, *, around):
        layer = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False).to(device)
        x = torch.randn(8, WIDTH, device=device, requires_grad=True)
        with around():
            loss = layer(x).sum()
        loss.backward()
        yield loss

    stays = predict(train_linear, around=partial(offload_activations, threshold=0))
    moves = predict(train_linear, around=save_on_cpu)
    assert moves.peak_allocated == stays.peak_allocated + WEIGHT


@pytest.mark.parametrize("place", PLACES)
def test_the_losses_are_those_of_the_plain_loop(place):
    plain = measure(train, rows=8, device=place)
    assert measure(train, rows=8, device=place, around=partial(offload_activations, threshold=0)).losses == plain.losses


def test_on_the_cpu_nothing_is_copied():
    plain, offloaded = measure(train, rows=8), measure(train, rows=8, around=offload_activations)
    if not torch.cuda.is_available():
        assert offloaded.peak_allocated == plain.peak_allocated


def test_a_tensor_that_stayed_and_was_changed_is_refused():
    x = torch.ones(4, requires_grad=True)
    with offload_activations():
        y = x.exp()
        z = y.sum()
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match=r"shape \(4,\) that backward needs was changed in place after forward"):
        z.backward()


def test_a_graph_without_backward_is_freed():
    with offload_activations():
        y = torch.ones(4, requires_grad=True).exp()
    storage = weakref.ref(y.untyped_storage())
    del y
    assert storage() is None


@pytest.mark.parametrize("threshold", [-1, 0.5, "1 MiB", True])
def test_other_thresholds_are_refused(threshold):
    with pytest.raises(BadValue, match=r"is not a number of bytes: give 0 \(all tensors\) or more"):
        offload_activations(threshold=threshold)


# The optimizer


def test_the_state_leaves_the_card():
    plain, offloaded = predict(train), predict(train, make_optimizer=on_host)
    assert most(plain, "optimizer state") >= 8 * WEIGHT
    assert most(offloaded, "optimizer state") == 0
    assert most(offloaded, "parameter") == most(plain, "parameter")
    assert most(offloaded, "gradient") == most(plain, "gradient")


@pytest.mark.parametrize("place", PLACES)
def test_the_host_steps_as_the_device_would(place):
    plain = measure(train, rows=8, device=place)
    offloaded = measure(train, rows=8, device=place, make_optimizer=on_host)
    assert offloaded.losses == pytest.approx(plain.losses, rel=0 if place == "cpu" else 1e-6)


def test_both_together():
    both = predict(train, around=offload_activations, make_optimizer=on_host)
    one = predict(train, around=offload_activations)
    assert both.peak_allocated <= one.peak_allocated - 8 * WEIGHT
    assert measure(train, rows=8, around=offload_activations, make_optimizer=on_host).losses == pytest.approx(
        measure(train, rows=8).losses, rel=1e-6
    )


def test_half_precision_has_a_copy_in_float32():
    weight = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    optimizer = HostOptimizer([weight], partial(torch.optim.SGD, lr=2.0**-12))
    for _ in range(32):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert weight.dtype == torch.bfloat16
    assert weight.tolist() == [1 - 32 * 2.0**-12] * 2  # each of the 32 steps alone is lost in bfloat16


def test_what_needs_no_gradient_and_what_has_none_stay_as_they_are():
    frozen, unused, used = (nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = HostOptimizer([frozen.requires_grad_(False), unused, used], ADAMW)
    used.grad = torch.ones(2)
    optimizer.step()
    assert frozen.tolist() == unused.tolist() == [1, 1] != used.tolist()
    assert optimizer.parameters == [unused, used]


def test_gradients_are_freed():
    weight = nn.Parameter(torch.ones(2))
    optimizer = HostOptimizer([weight], ADAMW)
    weight.grad = torch.ones(2)
    optimizer.step()
    optimizer.zero_grad()
    assert weight.grad is None
    assert all(copy.grad is None for group in optimizer.optimizer.param_groups for copy in group["params"])


def test_the_learning_rate_is_that_of_the_inner_optimizer():
    weight = nn.Parameter(torch.ones(2))
    optimizer = HostOptimizer([weight], partial(torch.optim.SGD, lr=1.0))
    torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, lambda step: 0.5)
    weight.grad = torch.ones(2)
    optimizer.step()
    assert weight.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("parameters", [[], [nn.Parameter(torch.ones(2), requires_grad=False)]])
def test_nothing_to_train_is_refused(parameters):
    with pytest.raises(BadValue, match="There is nothing to train: give parameters"):
        HostOptimizer(parameters, ADAMW)
