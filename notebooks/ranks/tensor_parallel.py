"""Tensor parallel: every weight matrix of a block in pieces, the whole batch on every rank."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from memlab.data import batches
from memlab.nets import GPT


def split(block, mesh):
    """Attention's heads and the MLP's hidden units among the ranks of a mesh."""
    attention = block.attention
    # A rank gets the queries, keys and values of its own heads only if they stand together.
    heads = attention.qkv.weight.shape[0] // 3
    order = torch.arange(3 * heads).view(3, mesh.size(), -1).transpose(0, 1).flatten()
    with torch.no_grad():
        attention.qkv.weight.copy_(attention.qkv.weight[order])
        attention.qkv.bias.copy_(attention.qkv.bias[order])
    attention.heads //= mesh.size()
    plan = {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel()}
    plan |= {"mlp.0": ColwiseParallel(), "mlp.2": RowwiseParallel()}
    parallelize_module(block, mesh, plan)


def train(
    device,
    *,
    batch_size=8,
    micro_batches=1,
    depth=4,
    width=32,
    heads=4,
    context=32,
    vocabulary=256,
):
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = GPT(
        depth=depth, width=width, heads=heads, context=context, vocabulary=vocabulary
    ).to(device)
    for block in model.blocks:
        split(block, mesh)
    optimizer = torch.optim.AdamW(
        model.parameters(), foreach=False
    )  # which cannot mix split and whole ones
    for tokens, targets in batches(batch_size, context):
        total = 0
        parts = (tokens.chunk(micro_batches), targets.chunk(micro_batches))
        for x, y in zip(*parts, strict=True):  # one after the other, as in notebook 03
            loss = model(x.to(device), y.to(device)) / micro_batches
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        yield total
