"""FSDP2: parameters, gradients and optimizer state in pieces, one on each rank."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from memlab.data import batches
from memlab.nets import GPT


def train(device, *, batch_size=8, depth=4, width=32, context=32, reshard=True):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks,))
    model = GPT(depth=depth, width=width, heads=4, context=context).to(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, context):
        mine = slice(rank * batch_size // ranks, (rank + 1) * batch_size // ranks)
        loss = model(tokens[mine].to(device), targets[mine].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
