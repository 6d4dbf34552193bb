"""The memory of DataParallel and DDP on two cards: PyTorch's own CUDA code on a stand-in, not measured on GPUs.

``python -m tests.standin A100-40GB:2 -m tests.cuda.data_parallel`` writes
``notebooks/recorded/standin-data-parallel.json``, which notebook 16 shows.
"""

import json
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from memlab.cluster import measure
from memlab.data import batches
from memlab.files import write_atomically
from memlab.nets import GPT
from memlab.shipped import shipped_folder
from notebooks.ranks import data_parallel

FILE = shipped_folder() / "recorded" / "standin-data-parallel.json"
SOURCE = "PyTorch's own CUDA code on a stand-in for the card, not measured on a GPU"
GPT2 = {"depth": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257}
GPT2_MEDIUM = GPT2 | {"depth": 24, "width": 1024, "heads": 16}
CASES = (("GPT-2 small", GPT2, 16), ("GPT-2 medium", GPT2_MEDIUM, 2))
STEPS = 3


class Logits(nn.Module):
    """A GPT that returns what its head says, as most models do: the loss is the caller's."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model.head(self.model.features(tokens))


def loss_of(wrapped, tokens, targets, inside):
    if inside:
        return wrapped(tokens, targets).mean()  # a loss from each card
    return F.cross_entropy(wrapped(tokens).flatten(0, 1), targets.flatten())


def start(card):
    """Forget the peaks of a card."""
    torch.empty(1, device=f"cuda:{card}")  # before its first tensor a card has no statistics
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(card)


def peaks(sizes, batch_size, *, cards=1, inside=False):
    """The most bytes allocated on each card, a batch shared by them: ``nn.DataParallel`` if there are several."""
    for card in range(cards):
        start(card)
    model = GPT(**sizes).to("cuda:0")
    wrapped = model if inside else Logits(model)
    if cards > 1:
        wrapped = nn.DataParallel(wrapped, device_ids=list(range(cards)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _, (tokens, targets) in zip(range(STEPS), batches(batch_size, sizes["context"]), strict=False):
        loss = loss_of(wrapped, tokens.to("cuda:0"), targets.to("cuda:0"), inside)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [torch.cuda.max_memory_allocated(card) for card in range(cards)]


def compared(name, sizes, batch_size):
    """One model and batch in all ways."""
    ranks = measure(data_parallel.train, world_size=2, device="cuda", batch_per_rank=batch_size // 2, **sizes)
    return {
        "model": name,
        "batch_size": batch_size,
        "one card": peaks(sizes, batch_size, inside=True),
        "one card, half of the batch": peaks(sizes, batch_size // 2, inside=True),
        "DataParallel, loss outside": peaks(sizes, batch_size, cards=2),
        "DataParallel, loss inside": peaks(sizes, batch_size, cards=2, inside=True),
        "DDP": [rank.peak_allocated for rank in ranks],
    }


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "Was asked to gather along dimension 0")  # the losses, which are scalars
    found = [compared(*case) for case in CASES]
    card = torch.cuda.get_device_name()
    told = {"source": SOURCE, "card": card, "torch": torch.__version__, "peak allocated bytes": found}
    FILE.parent.mkdir(exist_ok=True)
    write_atomically(FILE, json.dumps(told, indent=2).encode() + b"\n")
