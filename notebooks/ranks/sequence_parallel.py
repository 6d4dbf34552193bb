"""Tensor parallel with sequence parallel: between the matrices, each rank has a part of the sequence."""

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

BY_TOKENS = Shard(1)  # dimension 1 is the sequence


def gathered():  # a part of the sequence becomes the whole
    return PrepareModuleInput(
        input_layouts=BY_TOKENS,
        desired_input_layouts=Replicate(),
        use_local_output=False,
    )


def split(block, mesh, *, sequence=True):
    """Heads and hidden units of a Llama's block among the ranks; norms and residuals, too, if ``sequence``."""
    attention, down = block.attention, RowwiseParallel()
    attention.heads //= mesh.size()
    attention.kv_heads //= mesh.size()
    plan = {}
    if sequence:
        plan = {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()}
        plan |= {"attention": gathered(), "mlp": gathered()}
        down = RowwiseParallel(output_layouts=BY_TOKENS)
    columns = (
        "attention.query",
        "attention.key",
        "attention.value",
        "mlp.gate",
        "mlp.up",
    )
    plan |= dict.fromkeys(columns, ColwiseParallel())
    plan |= dict.fromkeys(("attention.out", "mlp.down"), down)
    parallelize_module(block, mesh, plan)


def split_ends(model, mesh, *, sequence=True):
    """Embedding and head: a part of the vocabulary on each rank."""
    whole = Replicate()
    embedding = RowwiseParallel(
        input_layouts=whole, output_layouts=BY_TOKENS if sequence else whole
    )
    plan = {"token_embedding": embedding}
    if sequence:
        plan["norm"] = SequenceParallel()
    plan["loss"] = PrepareModuleInput(
        input_layouts=(BY_TOKENS if sequence else whole, None),
        desired_input_layouts=(whole, None),
        use_local_output=False,
    )
    plan["loss.head"] = ColwiseParallel(
        output_layouts=Shard(-1), use_local_output=False
    )
    parallelize_module(model, mesh, plan)
