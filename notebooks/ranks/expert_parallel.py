"""Expert parallel: a mixture of experts in place of each MLP, every expert on one rank; tokens travel to them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import one_hot

from memlab.data import batches
from memlab.nets import Llama
from memlab.nets.llama import SwiGLU

from . import alone

# Jiang et al. 2024: 46,702,792,704 weights with 8 experts.
MIXTRAL = {"depth": 32, "width": 4096, "heads": 32, "kv_heads": 8, "hidden": 14_336}
MIXTRAL |= {"vocabulary": 32_000, "tied": False, "base": 1e6}
SMALL = {"depth": 2, "width": 64, "heads": 4, "kv_heads": 2, "hidden": 128}


def train(
    device,
    *,
    experts=8,
    per_token=2,
    capacity=0.0,
    routing="learned",
    tokens=64,
    batch_per_rank=1,
    sizes=SMALL,
):
    with alone.group() as (rank, ranks):
        model = make(device, sizes, experts, per_token, capacity, routing)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        mine = slice(rank * batch_per_rank, (rank + 1) * batch_per_rank)
        for texts in batches(ranks * batch_per_rank, tokens):
            loss = model(*(text[mine].to(device) for text in texts))
            loss.backward()
            average(model, ranks)
            optimizer.step()
            optimizer.zero_grad()
            yield loss


def make(device, sizes, experts, per_token, capacity, routing):
    """A Llama whose blocks have a mixture of experts; this rank makes its own ones only."""
    torch.manual_seed(0)  # what is not an expert is equal on all ranks
    half = device.type == "cuda" and torch.cuda.is_bf16_supported(False)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if half else before)
    try:
        with torch.device(device):
            model = Llama(**sizes | {"hidden": 1})
            how = experts, per_token, capacity, routing
            for block in model.blocks:
                block.mlp = Mixture(sizes["width"], sizes["hidden"], *how)
    finally:
        torch.set_default_dtype(before)
    return model


def whole(sizes, experts=8, per_token=2):
    """The shapes of all of it."""
    with alone.group():
        return make(torch.device("meta"), sizes, experts, per_token, 0.0, "learned")


def average(model, ranks):
    """Gradients of the mean loss: an expert has had the tokens of all ranks, the rest only its own rank's."""
    experts = {id(p) for b in model.blocks for p in b.mlp.experts.parameters()}
    for weight in model.parameters():
        if weight.grad is not None:
            if id(weight) not in experts:
                dist.all_reduce(weight.grad)
            weight.grad /= ranks


class Mixture(nn.Module):
    """Each token goes to the ``per_token`` experts that its router likes best, wherever they are.

    Args:
        capacity: 0, or an expert takes from each rank at most so many times its balanced share: buffers have a fixed
            size, and tokens beyond it pass by the expert.
        routing: "learned", or a fixed choice in the router's place, so that sizes are known.
    """

    def __init__(self, width, hidden, experts, per_token, capacity, routing):
        super().__init__()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self.router = nn.Linear(width, experts, bias=False)
        own = range(rank * experts // ranks, (rank + 1) * experts // ranks)
        self.experts = nn.ModuleList(made(number, width, hidden) for number in own)
        self.per_token, self.capacity, self.routing = per_token, capacity, routing

    def forward(self, x):
        flat = x.flatten(0, 1)
        scores, choice = self.router(flat).softmax(-1).topk(self.per_token)
        send = self.in_slots if self.capacity else self.in_order
        return send(flat, scores, choice).view_as(x)

    def in_order(self, flat, scores, choice):  # dropless: every token arrives
        choice, counts = self.decide(choice.flatten())
        order = choice.argsort(stable=True)
        sent = [sum(part) for part in cut(counts, dist.get_world_size())]
        arriving = self.announce(counts, flat.device)
        received = [sum(part) for part in arriving]
        rows = AllToAll.apply(flat[order // self.per_token], received, sent)
        pieces = rows.split([count for part in arriving for count in part])
        done = self.work(pieces)
        back = AllToAll.apply(torch.cat(done), sent, received)
        weighted = back * scores.flatten()[order, None]
        return torch.zeros_like(flat).index_add(0, order // self.per_token, weighted)

    def in_slots(
        self, flat, scores, choice
    ):  # buffers of a fixed size, as in Switch and GShard
        experts = self.router.out_features
        slots = int(self.capacity * choice.numel() / experts)
        hot = one_hot(choice.flatten(), experts)
        place = ((hot.cumsum(0) - 1) * hot).sum(1)  # in its expert's queue
        kept = place < slots
        index = torch.where(kept, choice.flatten() * slots + place, experts * slots)
        source = torch.arange(choice.numel(), device=flat.device) // self.per_token
        buffer = flat.new_zeros(experts * slots + 1, flat.shape[1])
        buffer = buffer.index_copy(0, index, flat[source])[:-1]
        each = [experts * slots // dist.get_world_size()] * dist.get_world_size()
        done = self.work(AllToAll.apply(buffer, each, each).split(slots))
        back = AllToAll.apply(torch.cat(done), each, each)
        back = torch.cat([back, back.new_zeros(1, flat.shape[1])])
        weighted = back[index] * scores.flatten()[:, None]
        return torch.zeros_like(flat).index_add(0, source, weighted)

    def work(self, pieces):
        """Pieces come by rank, then by expert; each expert has all of its own at once."""
        count, done = len(self.experts), list(pieces)
        for number, expert in enumerate(self.experts):
            theirs = pieces[number::count]
            result = expert(torch.cat(theirs))
            done[number::count] = result.split([len(piece) for piece in theirs])
        return done

    def decide(self, choice):
        """Return the expert of each choice, and the count of each expert; fixed routing needs no look at the router."""
        experts, total = self.router.out_features, len(choice)
        if self.routing == "balanced":
            counts = [total // experts] * experts
            return torch.arange(total, device=choice.device) % experts, counts
        if self.routing == "all to rank 0":
            first = len(self.experts)  # the experts of rank 0 share them
            counts = [total // first] * first + [0] * (experts - first)
            return torch.arange(total, device=choice.device) % first, counts
        return choice, torch.bincount(choice, minlength=experts).tolist()

    def announce(self, counts, device):
        """Return the counts that arrive, by rank and expert; if the router has decided, the ranks exchange them."""
        ranks, rank, own = dist.get_world_size(), dist.get_rank(), len(self.experts)
        if self.routing != "learned":
            return [cut(counts, ranks)[rank]] * ranks
        arriving = torch.empty(ranks * own, dtype=torch.int64, device=device)
        dist.all_to_all_single(arriving, torch.tensor(counts, device=device))
        return cut(arriving.tolist(), ranks)


def made(number, width, hidden):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 + number)  # the same expert on whichever rank
        expert = SwiGLU(width, hidden)
        for linear in expert.children():
            nn.init.normal_(linear.weight, std=0.02)
    return expert


def cut(counts, ranks):
    own = len(counts) // ranks
    return [counts[start : start + own] for start in range(0, len(counts), own)]


class AllToAll(torch.autograd.Function):
    """Rows go to other ranks; in backward their gradients come back."""

    @staticmethod
    def forward(ctx, rows, received, sent):
        ctx.back = sent, received
        return exchanged(rows, received, sent)

    @staticmethod
    def backward(ctx, gradient):
        return exchanged(gradient, *ctx.back), None, None


def exchanged(rows, received, sent):
    arrived = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent)
    return arrived
