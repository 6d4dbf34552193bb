"""The same bytes as a real run on the CPU, where the two dispatch the same operators."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlab import measure, predict
from memlab.nets import GPT, MLP
from memlab.trace import Category


def train_gpt(device, *, checkpoint_every=0, batch_size=4):
    model = GPT(depth=4, width=128, heads=4, context=64, checkpoint_every=checkpoint_every).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.zeros(batch_size, 64, dtype=torch.int64, device=device)
    while True:
        with sdpa_kernel(SDPBackend.MATH):  # backward too, where a checkpoint runs the attention again
            loss = model(tokens, tokens)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def train_mlp(device, *, checkpoint_every=0, batch_size=256):
    model = MLP(8, 128, checkpoint_every=checkpoint_every).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    x = torch.ones(batch_size, 128, device=device)
    while True:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def without_workspace(trace):
    """Return the bytes of tensors at the peak: the CPU has no allocator that would round, and no cuBLAS."""
    held = (
        sum(values[moment] for category, values in trace.timeline.items() if category is not Category.WORKSPACE)
        for moment in range(len(trace.allocated))
    )
    return max(held)


@pytest.mark.parametrize("train", [train_gpt, train_mlp])
@pytest.mark.parametrize("settings", [{}, {"checkpoint_every": 2}, {"batch_size": 16}])
def test_predicted_and_measured_agree(train, settings):
    predicted = predict(train, gpu="A100-40GB", **settings)
    measured = measure(train, device="cpu", **settings)
    assert without_workspace(predicted) == pytest.approx(measured.peak_allocated, rel=0.005)
    assert predicted.flops == measured.flops
    for category in (Category.PARAMETER, Category.GRADIENT):
        assert max(predicted.timeline[category]) == max(measured.timeline[category])


def sizes_by_operator(trace):
    """Return how often each operator allocated each number of bytes in the step."""
    found = {}
    for event in trace.events:
        if event.bytes > 0 and event.category is not Category.WORKSPACE:
            found[event.op, event.bytes] = found.get((event.op, event.bytes), 0) + 1
    return found


def test_every_difference_is_known():
    predicted, measured = predict(train_gpt, gpu="L4"), measure(train_gpt, device="cpu")
    ours, theirs = sizes_by_operator(predicted), sizes_by_operator(measured)
    differences = {
        key: (ours.get(key, 0), theirs.get(key, 0)) for key in ours | theirs if ours.get(key) != theirs.get(key)
    }
    assert differences == {
        # The 1 that foreach AdamW adds to its step counters. On a card it stays on the host, like the counters.
        ("aten.lift_fresh", 4): (0, 1),
        # The mask of causal attention, one a block: on CUDA it is added in place.
        ("aten.add", 262144): (0, 4),
    }
    counters = 4 * len(list(GPT(depth=4, width=128, heads=4, context=64).parameters()))
    states = [max(trace.timeline[Category.OPTIMIZER_STATE]) for trace in (predicted, measured)]
    assert states[1] - states[0] == counters
