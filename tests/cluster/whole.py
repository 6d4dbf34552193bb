"""One process with the whole batch: what every scheme is held to."""

import torch

from memlab.data import batches
from memlab.nets import GPT


def train(device, *, batch_size=8, depth=4, width=32, context=32, tied=True):
    model = GPT(depth=depth, width=width, heads=4, context=context)
    if not tied:
        model.head.weight = torch.nn.Parameter(model.head.weight.detach().clone())
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, context):
        loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
