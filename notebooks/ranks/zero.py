"""ZeRO by DeepSpeed: optimizer state (1), gradients too (2), parameters too (3) in pieces, one on each rank."""

import deepspeed
import torch.distributed as dist

from memlab.data import batches
from memlab.nets import GPT

BUCKET = 500_000_000  # numbers, DeepSpeed's default
SMALL = {"depth": 4, "width": 32, "heads": 4, "context": 32}


def configuration(batch_size, stage, *, offload=False, bucket=BUCKET, **more):
    """Return DeepSpeed's configuration, as in its JSON file; ``more`` are other sections, or keys of ZeRO's own."""
    zero = {"stage": stage, "contiguous_gradients": True, "reduce_bucket_size": bucket}
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = 0  # cut small parameters, too
    if offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    # PyTorch's AdamW: DeepSpeed's own would be compiled first.
    adamw = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}
    return (
        {
            "train_batch_size": batch_size,
            "gradient_clipping": 0.0,  # DeepSpeed's own default is 1
            "optimizer": adamw,
            "zero_force_ds_cpu_optimizer": False,
        }
        | more
        | {"zero_optimization": zero | more.get("zero_optimization", {})}
    )


def train(
    device,
    *,
    stage=2,
    offload=False,
    bucket=BUCKET,
    batch_per_rank=4,
    sizes=SMALL,
    **more,
):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    batch_size = batch_per_rank * ranks
    config = configuration(batch_size, stage, offload=offload, bucket=bucket, **more)
    engine, *_ = deepspeed.initialize(model=GPT(**sizes).to(device), config=config)
    mine = slice(rank * batch_per_rank, (rank + 1) * batch_per_rank)
    for tokens, targets in batches(batch_size, sizes["context"]):
        loss = engine(tokens[mine].to(device), targets[mine].to(device))
        engine.backward(loss)
        engine.step()
        yield loss
