"""DDP: the whole model on every rank, each with its share of the batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from memlab.data import batches
from memlab.nets import GPT


def train(
    device,
    *,
    batch_per_rank=4,
    depth=4,
    width=256,
    heads=4,
    context=32,
    vocabulary=256,
    checkpoint_every=0,
    bucket_view=False,
    fused=None,
    **options,
):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sizes = {"depth": depth, "width": width, "heads": heads, "context": context}
    sizes |= {"vocabulary": vocabulary, "checkpoint_every": checkpoint_every}
    model = GPT(**sizes).to(device)
    model = DDP(model, gradient_as_bucket_view=bucket_view, **options)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    mine = slice(rank * batch_per_rank, (rank + 1) * batch_per_rank)
    for tokens, targets in batches(ranks * batch_per_rank, context):
        loss = model(tokens[mine].to(device), targets[mine].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
