"""``python -m tests.notebooks.bill`` writes the memory bill that stands at the head of each notebook.

GPT-2 small as published, sixteen sequences of 1,024 tokens, predicted on a T4: each technique is added to those before
it. None changes what is trained. The plain step does not fit the card, so all are predicted on one of endless memory.
"""

import json
from functools import partial
from typing import Any

import torch

from memlab.data import batches
from memlab.files import write_atomically
from memlab.nets import GPT, GPT2_SMALL
from memlab.run import Run
from memlab.shipped import shipped_folder
from memlab.techniques.chunked_loss import chunked_cross_entropy
from memlab.techniques.offload import HostOptimizer
from memlab.vgpu.gpu import VirtualGpu

FILE = shipped_folder() / "recorded" / "bill.json"
CARD = "T4"
BATCH, CONTEXT = 16, 1024
AdamW = partial(torch.optim.AdamW, lr=1e-4)
# The notebook that teaches it, its name, and what it changes in the loop.
LADDER = (
    ("00", "the plain loop", {}),
    ("01", "AdamW fused", {"optimizer": partial(AdamW, fused=True)}),
    ("03", "2 micro-batches of 8", {"parts": 2}),
    ("04", "float16 autocast", {"half": True}),
    ("06", "every block checkpointed", {"checkpoint_every": 1}),
    ("11", "AdamW on the host", {"optimizer": partial(HostOptimizer, make_optimizer=partial(AdamW, fused=True))}),
    ("13b", "the loss in chunks", {"tokens_a_chunk": 256}),
)


def train(device, *, parts=1, half=False, checkpoint_every=0, optimizer=AdamW, tokens_a_chunk=0, sizes=GPT2_SMALL):
    """The loop with a switch for each technique."""
    model = GPT(**sizes, checkpoint_every=checkpoint_every).to(device)
    optimizer = optimizer(model.parameters())
    scaler = torch.amp.GradScaler(device.type, enabled=half)
    for rows, goals in batches(BATCH, min(CONTEXT, sizes["context"])):
        for some, targets in zip(rows.chunk(parts), goals.chunk(parts), strict=True):
            with torch.autocast(device.type, torch.float16, enabled=half):
                loss = loss_of(model, some.to(device), targets.to(device), tokens_a_chunk) / parts
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        yield loss


def loss_of(model, rows, targets, tokens_a_chunk):
    """The mean over all tokens, so many at a time; 0 for all at once."""
    if not tokens_a_chunk:
        return model(rows, targets)
    chunks = max(1, targets.numel() // tokens_a_chunk)
    return chunked_cross_entropy(model.features(rows), model.head.weight, targets, chunks=chunks)


def rungs(ladder=LADDER) -> list[dict[str, Any]]:
    """Every line of the bill."""
    settings: dict[str, Any] = {}
    found = []
    for notebook, name, change in ladder:
        settings = settings | change
        device = VirtualGpu(CARD)
        device.card = device.card.endless
        trace = Run(train, settings, device, steps=2).complete()
        taken = {str(category): count for category, count in trace.by_category.items()}
        found.append({"notebook": notebook, "name": name, "by_category": taken})
    return found


def bill() -> dict[str, Any]:
    """The record that ``memlab/drawings/bill.py`` reads."""
    batch = f"{BATCH} \u00d7 {CONTEXT:,} tokens"
    return {"model": "GPT-2 small", "batch": batch, "card": CARD, "rungs": rungs()}


if __name__ == "__main__":
    write_atomically(FILE, json.dumps(bill(), indent=1).encode() + b"\n")
