"""The loop whose steps the tests of drawings draw."""

import torch

from memlab.data import batches
from memlab.nets import GPT

SIZES = {"depth": 3, "width": 64, "heads": 2, "context": 64, "vocabulary": 4096}


def train(device, *, batch_size=4, **changed):
    """``changed`` are other sizes of the GPT."""
    sizes = SIZES | changed
    model = GPT(**sizes).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, sizes["context"]):
        loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
