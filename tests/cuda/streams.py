"""Loops with streams of their own."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH = 512


def blocks(device):
    parts = (nn.Sequential(nn.Linear(WIDTH, 2048), nn.GELU(), nn.Linear(2048, WIDTH)) for _ in range(4))
    return nn.ModuleList(parts).to(device)


def steps(device, forward):
    """A loop; ``forward(model, x)`` gives the loss."""
    model = blocks(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = forward(model, torch.zeros(WIDTH, WIDTH, device=device, requires_grad=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def some_layers(device):
    side = torch.cuda.Stream()

    def forward(model, x):
        x = model[0](x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x = model[2](model[1](x))
        torch.cuda.current_stream().wait_stream(side)
        return model[3](x).square().mean()

    yield from steps(device, forward)


def whole_forward_pass(device):
    side = torch.cuda.Stream()

    def forward(model, x):
        with torch.cuda.stream(side):
            for block in model:
                x = x + block(x)
            return x.square().mean()

    yield from steps(device, forward)


def two_branches(device):
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def forward(model, x):
        branches = []
        for first, stream in zip((0, 2), streams, strict=True):
            with torch.cuda.stream(stream):
                branches.append(model[first + 1](model[first](x)))
        return (branches[0] * branches[1]).mean()

    yield from steps(device, forward)


def checkpointed(device, *, use_reentrant=False):
    side = torch.cuda.Stream()

    def forward(model, x):
        with torch.cuda.stream(side):
            for block in model:
                x = checkpoint(block, x, use_reentrant=use_reentrant)
        return x.square().mean()

    yield from steps(device, forward)


def checkpointed_by_hand(device):
    yield from checkpointed(device, use_reentrant=True)


LOOPS = (some_layers, whole_forward_pass, two_branches, checkpointed, checkpointed_by_hand)
