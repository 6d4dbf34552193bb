"""The same bytes as arithmetic: residents by formula, a transformer block's activations counted by hand."""

from functools import partial

import pytest
import torch

from memlab import predict
from memlab.nets import GPT, MLP
from memlab.vgpu.versions import TORCH

WIDTH, HEADS, TOKENS, BATCH = 256, 4, 128, 4
OPTIMIZERS = {
    "AdamW foreach": partial(torch.optim.AdamW, foreach=True),
    "AdamW fused": partial(torch.optim.AdamW, fused=True),
    "AdamW": torch.optim.AdamW,
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "SGD momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
}
# Bytes of optimizer state for a parameter tensor of n numbers; fused AdamW counts its steps on the card.
STATE = {
    "AdamW foreach": lambda n: 8 * n,
    "AdamW fused": lambda n: 8 * n + 4,
    "AdamW": lambda n: 8 * n,
    "SGD": lambda n: 0,
    "SGD momentum": lambda n: 4 * n,
}


def train_gpt(device, *, depth=2, precision="fp32", checkpoint_every=0, optimizer="AdamW"):
    model = GPT(depth=depth, width=WIDTH, heads=HEADS, context=TOKENS, checkpoint_every=checkpoint_every).to(device)
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    while True:
        tokens = torch.zeros(BATCH, TOKENS, dtype=torch.int64, device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        yield loss
        optimizer.zero_grad()


def train_mlp(device, *, depth=4, optimizer="AdamW", checkpoint_every=0):
    model = MLP(depth, WIDTH, checkpoint_every=checkpoint_every).to(device)
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    while True:
        x = torch.ones(64, WIDTH, device=device, requires_grad=True)
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        yield loss
        optimizer.zero_grad()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("checkpoint_every", [0, 1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_residents_of_a_gpt_are_exact(optimizer, precision, checkpoint_every):
    settings = {"optimizer": optimizer, "precision": precision, "checkpoint_every": checkpoint_every}
    trace = predict(train_gpt, gpu="A100-40GB", **settings)
    sizes = [weight.numel() for weight in GPT(depth=2, width=WIDTH, heads=HEADS, context=TOKENS).parameters()]
    at_end = {category: values[-1] for category, values in trace.timeline.items()}
    assert at_end["parameter"] == 4 * sum(sizes)
    assert at_end["gradient"] == 4 * sum(sizes)
    assert at_end.get("optimizer state", 0) == sum(map(STATE[optimizer], sizes))


def activations(train, **settings):
    """Bytes of activations when backward begins."""
    return max(predict(train, gpu="A100-40GB", **settings).timeline["activation"])


def test_the_activations_of_a_float32_block_are_those_counted_by_hand():
    rows = BATCH * TOKENS
    by_hand = {
        "input, which the first norm keeps": 4 * rows * WIDTH,
        "mean and deviation of the first norm": 2 * 4 * rows,
        "normed, which the projection keeps": 4 * rows * WIDTH,
        "queries, keys and values": 3 * 4 * rows * WIDTH,
        "attention's result": 4 * rows * WIDTH,
        "attention's sums, float32, for rows of 32": 4 * BATCH * HEADS * TOKENS,
        "attention's random state, since 2.15 on the card": 0 if TORCH < (2, 15) else 8 + 8,
        "sum of the residual, which the second norm keeps": 4 * rows * WIDTH,
        "mean and deviation of the second norm": 2 * 4 * rows,
        "normed, which the wide layer keeps": 4 * rows * WIDTH,
        "wide, which GELU keeps": 4 * 4 * rows * WIDTH,
        "after GELU, which the narrow layer keeps": 4 * 4 * rows * WIDTH,
    }
    assert activations(train_gpt, depth=3) - activations(train_gpt, depth=2) == sum(by_hand.values())


def test_the_activations_of_a_bfloat16_block_are_those_counted_by_hand():
    rows = BATCH * TOKENS
    by_hand = {
        "input, float32, which the first norm keeps": 4 * rows * WIDTH,
        "mean and deviation of the first norm, float32": 2 * 4 * rows,
        "normed, cast for the projection": 2 * rows * WIDTH,
        "queries, keys and values": 3 * 2 * rows * WIDTH,
        "attention's result": 2 * rows * WIDTH,
        "attention's sums, float32": 4 * BATCH * HEADS * TOKENS,
        "attention's random state": 16 + 8,
        "sum of the residual, float32, which the second norm keeps": 4 * rows * WIDTH,
        "mean and deviation of the second norm, float32": 2 * 4 * rows,
        "normed, cast for the wide layer": 2 * rows * WIDTH,
        "wide, which GELU keeps": 4 * 2 * rows * WIDTH,
        "after GELU, which the narrow layer keeps": 4 * 2 * rows * WIDTH,
        "cast weights of four layers, which their products keep": 2 * (3 + 1 + 4 + 4) * WIDTH * WIDTH,
    }
    grown = activations(train_gpt, depth=3, precision="bf16") - activations(train_gpt, depth=2, precision="bf16")
    assert grown == sum(by_hand.values())


def test_a_checkpointed_block_keeps_its_input_alone():
    grown = activations(train_gpt, depth=3, checkpoint_every=1) - activations(train_gpt, depth=2, checkpoint_every=1)
    assert grown == 4 * BATCH * TOKENS * WIDTH  # the random state that it keeps is on the host


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("checkpoint_every", [0, 2])
def test_an_mlp_is_exact(optimizer, checkpoint_every):
    trace = predict(train_mlp, optimizer=optimizer, checkpoint_every=checkpoint_every)
    sizes = [WIDTH * WIDTH, WIDTH] * 4
    at_end = {category: values[-1] for category, values in trace.timeline.items()}
    assert at_end["parameter"] == at_end["gradient"] == 4 * sum(sizes)
    assert at_end.get("optimizer state", 0) == sum(map(STATE[optimizer], sizes))
    # Each block keeps its result, which ReLU and the next block share. Two checkpoints keep their inputs, and one of
    # those is x, which counts as an input.
    kept = 4 if checkpoint_every == 0 else 1
    assert max(trace.timeline["activation"]) == kept * 4 * 64 * WIDTH + 2 * 4  # and two losses, the last step's too


def test_what_is_allocated_is_whole_blocks():
    trace = predict(train_mlp)
    assert all(count % 512 == 0 for count in (trace.allocated[0], trace.peak_allocated, trace.peak_reserved))
    assert trace.peak_reserved >= trace.peak_allocated
    threads = 2 if TORCH < (2, 15) else 1  # cuBLAS's, one for each thread; since 2.15 each call gives it back
    assert trace.by_category["workspace"] > threads * 8_519_680
