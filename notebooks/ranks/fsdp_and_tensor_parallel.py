"""FSDP2 with tensor parallel: a mesh of two by two, blocks split along one side and sharded along the other."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from memlab.data import batches
from memlab.nets import GPT

from .tensor_parallel import split


def train(device, *, batch_size=8, depth=4, width=32, context=32, replicas=2, pieces=2):
    mesh = init_device_mesh(
        device.type, (replicas, pieces), mesh_dim_names=("data", "tensor")
    )
    model = GPT(depth=depth, width=width, heads=4, context=context).to(device)
    for block in model.blocks:
        split(block, mesh["tensor"])
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(
        model.parameters(), foreach=False
    )  # its operators take no mixture of DTensors
    row = mesh["data"].get_local_rank()
    for tokens, targets in batches(batch_size, context):
        mine = slice(row * batch_size // replicas, (row + 1) * batch_size // replicas)
        loss = model(tokens[mine].to(device), targets[mine].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
