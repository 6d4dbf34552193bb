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
from memlab.nets import GPT, Llama

STRATEGIES = ["ddp", "zero-1", "zero-2", "zero-3"]
SMALL = {"depth": 4, "width": 256, "heads": 4, "context": 32}


def train(device, *, strategy="zero-3", batch_per_rank=1, sizes=SMALL, **options):
    model, optimizer = distribute(strategy, sizes, device, **options)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = slice(rank * batch_per_rank, (rank + 1) * batch_per_rank)
    for tokens, targets in batches(ranks * batch_per_rank, sizes["context"]):
        loss = model(tokens[mine].to(device), targets[mine].to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def distribute(
    strategy,
    sizes,
    device,
    *,
    start="whole",
    precision="fp32",
    offload=False,
    compiled=False,
    replicas=1,
):
    """A model over all ranks, and its optimizer; ``start="meta"`` makes the model in pieces from the first."""
    torch.manual_seed(0)  # the ranks begin with the same numbers
    if strategy in ("ddp", "zero-1"):
        return replicate(build(sizes, device), strategy)
    home = "cpu" if offload else device
    model = build(sizes, "meta" if start == "meta" else home)
    if compiled:
        for block in model.blocks:
            block.compile()
    shard(
        model,
        device,
        keep=strategy == "zero-2",
        precision=precision,
        offload=offload and device.type != "cpu",
        replicas=replicas,
    )
    if start == "meta":
        fill(model.to_empty(device=home))
    return model, torch.optim.AdamW(model.parameters())


def replicate(model, strategy):
    """The whole model on every rank; in stage 1 the optimizer state in pieces."""
    model = DDP(model, gradient_as_bucket_view=True)
    if strategy == "zero-1":
        return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    return model, torch.optim.AdamW(model.parameters())


def shard(model, device, *, keep=False, precision="fp32", offload=False, replicas=1):
    """Everything in pieces, gathered when it is needed; what forward gathers may be kept for backward (stage 2)."""
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    ranks = dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks,))
    if replicas > 1:  # HSDP: each group of ranks has all pieces
        names = {"mesh_dim_names": ("replicate", "shard")}
        mesh = init_device_mesh(device.type, (replicas, ranks // replicas), **names)
    options = {
        "mesh": mesh,
        "reshard_after_forward": not keep,
        "mp_policy": bf16 if precision == "bf16" else MixedPrecisionPolicy(),
        "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy(),
    }
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)


def build(sizes, device):
    """A GPT, or a Llama where the sizes are of one; ``context`` is how many tokens a sequence has."""
    with torch.device(device):
        if "kv_heads" in sizes:
            return Llama(**{name: n for name, n in sizes.items() if name != "context"})
        return GPT(**sizes)


def fill(model):
    """Numbers for pieces that have memory and no values yet. Mostly they come from a checkpoint."""
    torch.manual_seed(dist.get_rank())
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(
            parameter.to_local(), mean=float("norm" in name), std=0.02
        )


def train_in_turn(device, *, strategies, each=3, **settings):
    """Some steps with each strategy, one strategy after the other: starting the ranks takes longer than the steps."""
    for strategy in strategies:
        yield from islice(train(device, strategy=strategy, **settings), each)


def train_whole(device, *, batch_size=4, sizes=SMALL):
    """The whole batch in one process, without any of this: what all of the above is held to."""
    torch.manual_seed(0)
    model = build(sizes, device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, sizes["context"]):
        loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss
