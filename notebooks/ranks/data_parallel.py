"""DDP: the whole model on every rank, each with its share of the batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from memlab.data import batches
from memlab.nets import GPT


def train(device, *, batch_size=8, depth=4, width=32, context=32, bucket_view=False, static_graph=False):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = GPT(depth=depth, width=width, heads=4, context=context).to(device)
    model = DDP(model, gradient_as_bucket_view=bucket_view, static_graph=static_graph)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, context):
        mine = slice(rank * batch_size // ranks, (rank + 1) * batch_size // ranks)
        loss = model(tokens[mine].to(device), targets[mine].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
