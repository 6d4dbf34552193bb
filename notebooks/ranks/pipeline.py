"""Pipeline parallel: consecutive blocks on each rank, the batch passed along in micro-batches."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn.functional import cross_entropy

from memlab.data import batches
from memlab.nets import GPT

SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
}


class Part(nn.Module):
    """Consecutive blocks of a GPT; the first part embeds the tokens, the last one gives the logits."""

    def __init__(self, model, index, count):
        super().__init__()
        depth = len(model.blocks) // count
        self.blocks = nn.Sequential(*model.blocks[index * depth : (index + 1) * depth])
        if index == 0:
            self.tokens, self.positions = (
                model.token_embedding,
                model.position_embedding,
            )
        if index == count - 1:
            self.norm, self.head = model.norm, model.head
            self.head.weight = nn.Parameter(
                model.head.weight.detach().clone()
            )  # on another rank than its twin

    def forward(self, x):
        if hasattr(self, "tokens"):
            x = self.tokens(x) + self.positions.weight[: x.shape[1]]
        x = self.blocks(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


def loss_of(logits, targets):
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def shapes(index, count, texts, width, context, vocabulary):
    """Return the input and the output of a part, for one micro-batch: tensors without memory."""
    tokens = torch.empty(texts, context, dtype=torch.int64, device="meta")
    between = torch.empty(texts, context, width, device="meta", requires_grad=True)
    logits = torch.empty(texts, context, vocabulary, device="meta", requires_grad=True)
    return {
        "input_args": tokens if index == 0 else between,
        "output_args": logits if index == count - 1 else between,
    }


def train(
    device,
    *,
    batch_size=8,
    depth=8,
    width=256,
    heads=4,
    context=32,
    vocabulary=256,
    schedule="gpipe",
    micro_batches=4,
    return_outputs=True,
):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = GPT(
        depth=depth, width=width, heads=heads, context=context, vocabulary=vocabulary
    )
    chunks = 2 if schedule == "interleaved" else 1
    count = chunks * ranks
    if depth % count or batch_size % micro_batches:
        raise ValueError(
            f"{depth} blocks in {count} parts, {batch_size} texts in {micro_batches} micro-batches: give multiples."
        )
    parts = {
        index: Part(model, index, count).to(device)
        for index in range(rank, count, ranks)
    }
    sizes = (count, batch_size // micro_batches, width, context, vocabulary)
    stages = [
        PipelineStage(part, index, count, device, **shapes(index, *sizes))
        for index, part in parts.items()
    ]
    pipeline = SCHEDULES[schedule](
        stages if chunks > 1 else stages[0], micro_batches, loss_fn=loss_of
    )
    optimizer = torch.optim.AdamW(nn.ModuleList(parts.values()).parameters())
    del model
    for tokens, targets in batches(batch_size, context):
        losses = []
        inputs = [tokens.contiguous().to(device)] if rank == 0 else []
        pipeline.step(
            *inputs,
            target=targets.to(device),
            losses=losses,
            return_outputs=return_outputs,  # of the last stage: all logits, in one tensor
        )
        optimizer.step()
        optimizer.zero_grad()
        yield torch.stack(losses).mean() if losses else None
