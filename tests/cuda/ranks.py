"""``torchrun -m tests.cuda.ranks FOLDER GROUP``: each rank measures loops on its card, FOLDER/RANK.json has the peaks.

NCCL's watchdog lets go of what a collective used some tenths of a second after it is over: of the buckets of
DistributedDataParallel, which nobody waits for. On the stand-in all is over at once, so its loops wait after each part
of a step, as one on a real card does by working.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    OffloadPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from memlab import measure
from memlab.nets import GPT
from memlab.nets.gpt import Block

sys.path.append(str(Path(__file__).parents[2] / "notebooks"))  # where the loops of several ranks are
from ranks import expert_parallel, long_and_wide

WAIT = 0.6 if "STANDIN_CARD" in os.environ else 0  # seconds
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def wait():
    if dist.get_backend() == "nccl":
        torch.cuda.synchronize()
        time.sleep(WAIT)


def gpt():
    return GPT(depth=4, width=512, heads=4, context=128)


def steps(model, optimizer, device, wait=lambda: None):
    tokens = torch.zeros(8, 128, dtype=torch.long)
    while True:
        loss = model(tokens.to(device), tokens.to(device))
        wait()
        loss.backward()
        wait()
        optimizer.step()
        optimizer.zero_grad()
        wait()
        yield loss


def replicated(device, **options):
    model = DistributedDataParallel(gpt().to(device), **options)
    yield from steps(model, torch.optim.AdamW(model.parameters()), device, wait)


def views(device):
    yield from replicated(device, gradient_as_bucket_view=True)


def small_buckets(device):
    yield from replicated(device, bucket_cap_mb=1)


def fixed_graph(device):
    yield from replicated(device, static_graph=True)


def sharded_state(device):
    from torch.distributed.optim import ZeroRedundancyOptimizer  # here: torch warns of itself when it is imported

    model = DistributedDataParallel(gpt().to(device))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)
    yield from steps(model, optimizer, device, wait)


def in_pieces(model, *, reshard=True, **options):
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard, **options)
    return fully_shard(model, **options)


def sharded(device, *, reshard=True, policy=None, offload=False, on_meta=False):
    options = {"mp_policy": policy or MixedPrecisionPolicy(), "offload_policy": OffloadPolicy()}
    if offload:
        options["offload_policy"] = CPUOffloadPolicy()
    with torch.device("meta" if on_meta else "cpu"):
        model = gpt()
    model = in_pieces(model if on_meta or offload else model.to(device), reshard=reshard, **options)
    if on_meta:
        model.to_empty(device=device)
    yield from steps(model, torch.optim.AdamW(model.parameters()), device)


def kept_until_backward(device):
    yield from sharded(device, reshard=False)


def sharded_in_half(device):
    yield from sharded(device, policy=HALF)


def offloaded(device):
    yield from sharded(device, offload=True)


def made_in_shards(device):
    yield from sharded(device, on_meta=True)


def filled_and_clipped(device):
    with torch.device("meta"):
        model = gpt()
    in_pieces(model).to_empty(device=device)
    for parameter in model.parameters():
        nn.init.trunc_normal_(parameter)
    optimizer = torch.optim.AdamW(model.parameters())
    for loss in steps(model, optimizer, device):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        yield loss


def scattered_once_a_step(device):
    model = in_pieces(gpt().to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(4, 128, dtype=torch.long, device=device)
    while True:
        for is_last in (False, True):
            model.set_requires_gradient_sync(is_last)
            loss = model(tokens, tokens)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def saved_whole(device, **options):
    model = in_pieces(gpt().to(device))
    while True:
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, **options))
        yield None


def saved_whole_on_the_host(device):
    yield from saved_whole(device, cpu_offload=True)


def flattened(device, *, strategy="FULL_SHARD", precision=None, orig_params=True, offload=False):
    options = {"auto_wrap_policy": ModuleWrapPolicy({Block}), "cpu_offload": CPUOffload(offload)}
    options |= {"mixed_precision": precision, "use_orig_params": orig_params}
    model = FullyShardedDataParallel(gpt(), device_id=device, sharding_strategy=ShardingStrategy[strategy], **options)
    yield from steps(model, torch.optim.AdamW(model.parameters()), device)


def flattened_and_kept(device):
    yield from flattened(device, strategy="SHARD_GRAD_OP")


def flattened_in_half(device):
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    yield from flattened(device, precision=precision, orig_params=False)


def flattened_and_offloaded(device):
    yield from flattened(device, offload=True)


def tensor_parallel(device):
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to(device)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(torch.zeros(256, 1024, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


WIDE = {"depth": 2, "width": 512, "heads": 4, "kv_heads": 2, "hidden": 1536, "vocabulary": 1024}


def context_parallel(device):
    yield from long_and_wide.train(device, mesh="context 2", tokens=1024, sizes=WIDE)


def ring_of_pytorch(device, rotation="allgather"):
    ring = {"mesh": "context 2", "rotation": rotation, "repeats": True}
    yield from long_and_wide.train(device, **ring, tokens=1024, sizes=WIDE)


def ring_of_pytorch_sent_round(device):
    yield from ring_of_pytorch(device, "alltoall")


def attention_of_dtensors(device):
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    project = nn.Linear(512, 3 * 512, device=device)
    parallelize_module(project, mesh, ColwiseParallel(use_local_output=False))
    optimizer = torch.optim.AdamW(project.parameters())
    while True:
        parts = project(torch.zeros(4, 256, 512, device=device)).unflatten(-1, (8, 3, 64)).unbind(-2)
        heads = (part.transpose(1, 2) for part in parts)
        loss = nn.functional.scaled_dot_product_attention(*heads, is_causal=True).to_local().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def sequence_parallel(device):
    yield from long_and_wide.train(device, mesh="tensor 2", tokens=1024, sizes=WIDE)


def experts(device):
    yield from expert_parallel.train(device, routing="balanced", tokens=1024, sizes=WIDE)


def experts_with_slots(device):
    yield from expert_parallel.train(device, routing="balanced", capacity=1.25, tokens=1024, sizes=WIDE)


def experts_all_on_one(device):
    yield from expert_parallel.train(device, routing="all to rank 0", tokens=1024, sizes=WIDE)


LOOPS = (
    *(replicated, views, small_buckets, fixed_graph, sharded_state, sharded, kept_until_backward, sharded_in_half),
    *(offloaded, made_in_shards, filled_and_clipped, tensor_parallel),
    *(scattered_once_a_step, saved_whole, saved_whole_on_the_host),
    *(context_parallel, ring_of_pytorch, ring_of_pytorch_sent_round, attention_of_dtensors, sequence_parallel),
    *(experts, experts_with_slots, experts_all_on_one),
    *(flattened_and_offloaded, flattened, flattened_and_kept, flattened_in_half),  # which leave some of it behind
)


def replicated_and_compiled(device):
    model = DistributedDataParallel(torch.compile(gpt().to(device)))
    yield from steps(model, torch.optim.AdamW(model.parameters()), device, wait)


def sharded_and_compiled(device, *, by_block=False):
    model = gpt().to(device)
    for block in model.blocks:
        if by_block:
            block.compile()
        fully_shard(block)
    fully_shard(model)
    run = model if by_block else torch.compile(model)
    yield from steps(run, torch.optim.AdamW(model.parameters()), device)


def sharded_and_compiled_by_block(device):
    yield from sharded_and_compiled(device, by_block=True)


# Which an X-ray would run uncompiled.
COMPILED = replicated_and_compiled, sharded_and_compiled, sharded_and_compiled_by_block
STEPS = 3


def xrayed(loop):
    trace = measure(loop, device="cuda", xray="every", steps=STEPS)
    return [step.peak_allocated for step in trace.steps], trace.peak_reserved


def counted(loop):
    generator, peaks = loop(torch.device("cuda")), []
    torch.cuda.reset_peak_memory_stats()
    for _ in range(STEPS):
        next(generator)
        peaks.append(torch.cuda.max_memory_allocated())
        reserved = torch.cuda.max_memory_reserved()
        torch.cuda.reset_peak_memory_stats()
    generator.close()
    return peaks, reserved


def main(folder, group):
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    peaks = {}
    loops, take = (COMPILED, counted) if group == "compiled" else (LOOPS, xrayed)
    for loop in loops:
        dist.init_process_group("nccl")
        peaks[loop.__name__] = take(loop)
        dist.destroy_process_group()  # it keeps the last buckets
        gc.collect()
        torch.cuda.empty_cache()
    Path(folder, f"{rank}.json").write_text(json.dumps(peaks))


if __name__ == "__main__":
    main(*sys.argv[1:])
