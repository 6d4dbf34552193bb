"""Loops in which it depends on numbers how much is chosen. Here nothing ever is, and so it is on the stand-in."""

import torch
from torch import nn
from torch.nn import functional as F

NEVER = 1e9


def detected(device):
    """Boxes that are near to an object, as in the loss of a detector."""
    net = nn.Sequential(nn.Linear(48, 64), nn.SiLU(), nn.Linear(64, 9)).to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    while True:
        found = net(torch.rand(8, 4096, 48).to(device))
        near = found[..., 0] > NEVER
        boxes = F.smooth_l1_loss(found[near], torch.rand(8, 4096, 9, device=device)[near], reduction="sum")
        loss = boxes + F.binary_cross_entropy_with_logits(found[..., 1:], torch.zeros_like(found[..., 1:]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def classified(device, forward):
    """``forward(logits)`` gives the loss."""
    net = nn.Linear(256, 1000).to(device)
    while True:
        loss = forward(net(torch.randn(4096, 256, device=device)))
        loss.backward()
        net.zero_grad()
        yield loss


def hard_examples(device):
    def forward(logits):
        each = F.cross_entropy(logits, torch.randint(1000, (4096,), device=device), reduction="none")
        return each[(each > NEVER).nonzero(as_tuple=True)[0]].sum() + each.mean()

    yield from classified(device, forward)


def masked_select(device):
    yield from classified(device, lambda logits: torch.masked_select(logits, logits > NEVER).sum() + logits.mean())


def masked_assignment(device):
    def forward(logits):
        out, mask = torch.zeros_like(logits), logits > NEVER
        out[mask] = logits[mask].square()
        return (out + logits).mean()

    yield from classified(device, forward)


LOOPS = (detected, hard_examples, masked_select, masked_assignment)
