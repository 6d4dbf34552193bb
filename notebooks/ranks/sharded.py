"""DDP and the three stages of ZeRO: what each rank keeps of the parameters, the gradients and the optimizer state."""

from itertools import islice

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from memlab.data import batches
from memlab.nets import GPT

STRATEGIES = ["ddp", "zero-1", "zero-2", "zero-3"]


def replicate(model, strategy):
    """The whole model on every rank; in stage 1 the optimizer state in pieces."""
    model = DDP(model, gradient_as_bucket_view=True)
    if strategy == "zero-1":
        return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    return model, torch.optim.AdamW(model.parameters())


def shard(model, strategy, mesh, *, precision="fp32", offload=False):
    """Everything in pieces, gathered when it is needed; in stage 2 what forward has gathered stays for backward."""
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = {
        "mesh": mesh,
        "reshard_after_forward": strategy == "zero-3",
        "mp_policy": bf16 if precision == "bf16" else MixedPrecisionPolicy(),
        "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy(),
    }
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def fill(model):
    """Numbers for pieces that have memory and no values yet. Mostly they come from a checkpoint."""
    torch.manual_seed(dist.get_rank())
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(
            parameter.to_local(), mean=float("norm.weight" in name), std=0.02
        )


def train(
    device,
    *,
    strategy="zero-3",
    precision="fp32",
    offload=False,
    start="whole",
    batch_per_rank=4,
    depth=4,
    width=256,
    context=32,
    checkpoint_every=0,
):
    torch.manual_seed(0)  # the ranks begin with the same numbers
    rank, ranks = dist.get_rank(), dist.get_world_size()
    in_pieces = strategy in ("zero-2", "zero-3")
    home = "cpu" if offload and in_pieces else device
    with torch.device("meta" if start == "meta" and in_pieces else home):
        heads = max(4, width // 128)
        model = GPT(
            depth=depth,
            width=width,
            heads=heads,
            context=context,
            checkpoint_every=checkpoint_every,
        )
    if in_pieces:
        mesh = init_device_mesh(device.type, (ranks,))
        model = shard(
            model,
            strategy,
            mesh,
            precision=precision,
            offload=offload and device.type != "cpu",
        )
        if start == "meta":
            fill(model.to_empty(device=home))
        optimizer = torch.optim.AdamW(model.parameters())
    else:
        model, optimizer = replicate(model, strategy)
    mine = slice(rank * batch_per_rank, (rank + 1) * batch_per_rank)
    for tokens, targets in batches(ranks * batch_per_rank, context):
        loss = model(tokens[mine].to(device), targets[mine].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def train_in_turn(device, *, strategies, each=3, **settings):
    """Some steps with each strategy, one strategy after the other: starting the ranks takes longer than the steps."""
    for strategy in strategies:
        yield from islice(train(device, strategy=strategy, **settings), each)


def train_whole(device, *, batch_size=4, depth=4, width=256, context=32):
    """The whole batch in one process, without any of this: what all of the above is held to."""
    torch.manual_seed(0)
    model = GPT(
        depth=depth, width=width, heads=max(4, width // 128), context=context
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, context):
        loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
