"""Imported once by the process that ``apart`` forks: what the first measurement and the first prediction load."""

import os

os.environ |= {"MEMLAB_SIZE": "ci", "OMP_NUM_THREADS": "1"}

import torch

import memlab
from memlab import plots  # noqa: F401
from memlab.data import batches
from memlab.garbage import freeze_for_good
from memlab.lab import Lab  # noqa: F401
from memlab.nets import GPT
from tests.notebooks import challenge, panels, same_result  # noqa: F401


def train(device):
    model = GPT(depth=1, width=8, heads=1, context=8).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(1, 8):
        loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


memlab.predict(train, gpu="T4", steps=1)
memlab.measure(train, device="cpu", steps=1)

# As memlab.kernels.nursery does: a check then looks through its own objects alone, when it collects and counts them.
freeze_for_good()
