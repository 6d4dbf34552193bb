"""A Llama on a mesh of ranks: data x context x tensor. Weights, gradients and state are sharded over data and context."""

from contextlib import nullcontext
from functools import partial
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from memlab.data import batches
from memlab.nets import Llama

from . import expert_parallel
from .context_parallel import RingAttention, by_pytorch, mine
from .sequence_parallel import split, split_ends

NAMES = "data", "context", "tensor"
MESHES = {  # context x tensor, or as many as there are; all other ranks are for data
    "data alone": (1, 1),
    "context 2": (2, 1),
    "context 4": (4, 1),
    "context 8": (8, 1),
    "tensor 2": (1, 2),
    "tensor 4": (1, 4),
    "tensor 8": (1, 8),
    "context 2 x tensor 2": (2, 2),
    "context 2 x tensor 4": (2, 4),
    "context 4 x tensor 2": (4, 2),
}
OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "SGD": partial(torch.optim.SGD, lr=1.0),  # a wrong gradient shows in the next loss
}
SMALL = {"depth": 2, "width": 128, "heads": 16, "kv_heads": 8, "hidden": 256}
CHUNK = 1024  # tokens whose logits exist at the same time


def train(
    device,
    *,
    mesh="data alone",
    tokens=64,
    batch_per_rank=1,
    checkpoints=True,
    sequence=True,
    optimizer="AdamW",
    rotation="ours",
    repeats=False,
    sizes=SMALL,
    start="whole",
):
    sizes = sizes | {"checkpoint_every": int(checkpoints)}
    if not dist.is_initialized():  # a process alone has nothing to divide
        how = {"sequences": batch_per_rank, "optimizer": optimizer}
        yield from train_whole(device, tokens=tokens, sizes=sizes, **how)
        return
    shape = shape_of(mesh, dist.get_world_size())
    _, context, tensor = shape
    parts = init_device_mesh(device.type, shape, mesh_dim_names=NAMES)
    rank = parts["context"].get_local_rank()
    places = mine(torch.arange(tokens)[None], rank, context)[0].to(device)
    ring = {"group": None if rotation != "ours" else parts["context"].get_group()}
    ring |= {"positions": places, "repeats": repeats}
    model = distribute(sizes, device, parts, ring, sequence, start)
    stepper = OPTIMIZERS[optimizer](model.parameters(), foreach=tensor == 1)
    row = parts["data"].get_local_rank() * batch_per_rank
    for texts in batches(shape[0] * batch_per_rank, tokens):
        texts = (text[row : row + batch_per_rank] for text in texts)
        if rotation == "ours":
            own = (mine(text, rank, context).to(device) for text in texts)
            cut = nullcontext()
        else:
            own = [text.to(device) for text in texts]
            cut = by_pytorch(parts["context"], own, rotation)
        with cut, loss_parallel() if tensor > 1 else nullcontext():
            loss = model(*own)
            loss.backward()
        stepper.step()
        stepper.zero_grad()
        yield loss


def shape_of(mesh, ranks):
    context, tensor = MESHES[mesh]
    tensor = min(tensor, ranks)
    context = min(context, ranks // tensor)
    return ranks // (context * tensor), context, tensor


class Loss(nn.Module):
    """The head and the cross-entropy, of a few tokens at a time."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, features, targets):
        count = -(-targets.shape[1] // CHUNK)
        pieces = zip(features.chunk(count, 1), targets.chunk(count, 1), strict=True)
        losses = (
            checkpoint(self.sum_of, *pair, use_reentrant=False) for pair in pieces
        )
        return sum(losses) / targets.numel()

    def sum_of(self, features, targets):
        logits = self.head(features).flatten(0, 1).float()
        return cross_entropy(logits, targets.flatten(), reduction="sum")


class Long(Llama):
    """A Llama whose head is in its loss."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.loss = Loss(self.head)
        del self.head

    def forward(self, tokens, targets):
        return self.loss(self.features(tokens), targets)


def distribute(sizes, device, parts, ring, sequence, start):
    """The model over all ranks; ``start="meta"`` makes it in pieces from the first."""
    torch.manual_seed(0)  # the ranks begin with the same numbers
    with torch.device("meta" if start == "meta" else device):
        model = Long(**sizes)
    tied = model.loss.head.weight is model.token_embedding.weight
    data, context, tensor = parts.shape
    names = "shards", "tensor"
    mesh = init_device_mesh(device.type, (data * context, tensor), mesh_dim_names=names)
    if tensor > 1:
        split_ends(model, mesh["tensor"], sequence=sequence)
        if tied:  # each of the two has been split on its own
            model.loss.head.weight = model.token_embedding.weight
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(False)
    policy = bf16 if has_bf16 else MixedPrecisionPolicy()
    for block in model.blocks:
        if tensor > 1:
            split(block, mesh["tensor"], sequence=sequence)
        if context > 1:
            block.attention = RingAttention(block.attention, **ring)
        fully_shard(block, mesh=mesh["shards"], mp_policy=policy)
    fully_shard(model, mesh=mesh["shards"], mp_policy=policy)
    if start == "meta":
        fill(model.to_empty(device=device))
    return model


def fill(model):
    """Numbers for pieces that have memory and no values yet. Mostly they come from a checkpoint."""
    for parameter in model.parameters():
        nn.init.normal_(parameter.to_local(), std=0.02)


def train_whole(device, *, tokens=64, sequences=1, optimizer="AdamW", sizes=SMALL):
    """All of it in one process, without any of this: what the ranks are held to."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Long(**sizes)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    for texts in batches(sequences, tokens):
        loss = model(*(text.to(device) for text in texts))
        loss.backward()
        stepper.step()
        stepper.zero_grad()
        yield loss


def train_in_turn(device, *, meshes, each=3, **settings):
    """Some steps with each mesh, then with experts: starting the ranks takes longer than the steps."""
    for mesh in meshes:
        yield from islice(train(device, mesh=mesh, **settings), each)
    yield from islice(expert_parallel.train(device), each)
