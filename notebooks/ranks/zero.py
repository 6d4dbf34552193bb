"""ZeRO by DeepSpeed: optimizer state (1), gradients too (2), parameters too (3) in pieces, one on each rank."""

import deepspeed
import torch.distributed as dist

from memlab.data import batches
from memlab.nets import GPT


def configuration(batch_size, stage):
    return {
        "train_batch_size": batch_size,
        "gradient_clipping": 0.0,  # DeepSpeed's own default is 1
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 1e-3, "weight_decay": 1e-2, "torch_adam": True},
        },
        # Its default bucket, of 5e8 numbers, takes two gigabytes.
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": 1e4,
            "stage3_param_persistence_threshold": 0,
        },
    }


def train(device, *, batch_size=8, depth=4, width=32, context=32, stage=2):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = GPT(depth=depth, width=width, heads=4, context=context).to(device)
    engine, *_ = deepspeed.initialize(
        model=model, config=configuration(batch_size, stage)
    )
    for tokens, targets in batches(batch_size, context):
        mine = slice(rank * batch_size // ranks, (rank + 1) * batch_size // ranks)
        loss = engine(tokens[mine].to(device), targets[mine].to(device))
        engine.backward(loss)
        engine.step()
        yield loss
