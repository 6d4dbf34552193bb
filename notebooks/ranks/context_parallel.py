"""Context parallel: each rank has a part of every sequence, and keys and values travel round a ring of ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.nn import functional
from torch.nn.functional import pad

from memlab.nets.llama import rotate

aten = torch.ops.aten


def mine(sequence, rank, ranks):
    """Of ``(batch, tokens, ...)`` the rank's two pieces, one from the front and one from the back: equal work for all."""
    pieces = sequence.chunk(2 * ranks, dim=1)
    return torch.cat([pieces[rank], pieces[-1 - rank]], dim=1)


def attend(query, key, value, causal):
    """Attention, and for each query the logarithm of the sum that its softmax divides by."""
    if query.device.type == "cpu":
        kernel = aten._scaled_dot_product_flash_attention_for_cpu
        return kernel(query, key, value, 0.0, causal)
    if query.dtype == torch.float32:  # for which there is no flash attention
        kernel = aten._scaled_dot_product_efficient_attention
        out, total, *_ = kernel(query, key, value, None, True, 0.0, causal)
        return out, total[..., : query.shape[2]]
    return aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal)[:2]


def attend_backward(gradient, query, key, value, out, total, causal):
    given = gradient, query, key, value
    if query.device.type == "cpu":
        kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward
        return kernel(*given, out, total, 0.0, causal)
    seed = torch.empty(2, dtype=torch.uint64, device=query.device)  # of no dropout
    nothing = torch.empty(0, dtype=torch.uint64, device=query.device)
    if query.dtype == torch.float32:
        total = pad(total, (0, -query.shape[2] % 32))  # as the kernel writes it
        wanted = [True, True, True, False]
        kernel = aten._scaled_dot_product_efficient_attention_backward
        given = *given, None, out, total, seed[0], seed[1], 0.0, wanted, causal
        return kernel(*given)[:3]
    longest = query.shape[2], key.shape[2]
    kernel = aten._scaled_dot_product_flash_attention_backward
    return kernel(*given, out, total, None, None, *longest, 0.0, causal, seed, nothing)


def seen(step, rank, ranks, tokens):
    """Return the rank's queries and the keys of this step that they attend to, and whether the mask is causal."""
    everything, half = slice(0, tokens), tokens // 2
    if step == 0:  # its own keys
        return everything, everything, True
    if (
        (rank - step) % ranks < rank
    ):  # an earlier rank's: their front is before all queries, their back after
        return everything, slice(0, half), False
    return slice(half, tokens), everything, False


def pass_on(tensors, group):
    """Send to the next rank of the ring, and return what comes from the one before."""
    ranks, rank = dist.get_process_group_ranks(group), dist.get_rank(group)
    arrived = [torch.empty_like(tensor) for tensor in tensors]
    after, before = ranks[(rank + 1) % len(ranks)], ranks[rank - 1]
    sends = [dist.P2POp(dist.isend, tensor, after, group) for tensor in tensors]
    receives = [dist.P2POp(dist.irecv, tensor, before, group) for tensor in arrived]
    for work in dist.batch_isend_irecv(sends + receives):
        work.wait()
    return arrived


def widened(x, heads):
    """Of grouped keys or values, a copy for every head of queries."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


class Ring(torch.autograd.Function):
    """Causal attention to the keys and values of all ranks. Only the rank's own are saved for backward."""

    @staticmethod
    def forward(ctx, query, key, value, group):
        rank, ranks, heads = (
            dist.get_rank(group),
            dist.get_world_size(group),
            query.shape[1],
        )
        keys = key.contiguous(), value.contiguous()
        out = torch.zeros_like(query, dtype=torch.float32)
        total = torch.full(query.shape[:-1], -torch.inf, device=query.device)
        for step in range(ranks):
            rows, columns, causal = seen(step, rank, ranks, query.shape[2])
            block = [widened(x[:, :, columns], heads) for x in keys]
            more, its_total = attend(query[:, :, rows], *block, causal)
            both = torch.logaddexp(total[:, :, rows], its_total)
            out[:, :, rows] *= (total[:, :, rows] - both).exp()[..., None]
            out[:, :, rows] += more * (its_total - both).exp()[..., None]
            total[:, :, rows] = both
            if step < ranks - 1:
                keys = pass_on(keys, group)
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, total)
        ctx.group = group
        return out

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, out, total = ctx.saved_tensors
        group, heads = ctx.group, query.shape[1]
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        of_query = torch.zeros_like(query, dtype=torch.float32)
        travelling = [key.contiguous(), value.contiguous()]
        travelling += [torch.zeros_like(x, dtype=torch.float32) for x in travelling]
        for step in range(ranks):
            rows, columns, causal = seen(step, rank, ranks, query.shape[2])
            block = [widened(x[:, :, columns], heads) for x in travelling[:2]]
            ours = (x[:, :, rows] for x in (gradient, query))
            given = (x[:, :, rows].contiguous() for x in (out, total))
            more, *of_keys = attend_backward(*ours, *block, *given, causal)
            of_query[:, :, rows] += more
            for sum_of, part in zip(travelling[2:], of_keys, strict=True):
                sum_of[:, :, columns] += part.unflatten(1, (sum_of.shape[1], -1)).sum(2)
            travelling = pass_on(travelling, group)  # after the last step, home
        _, _, *of_keys = travelling
        of_key, of_value = (x.to(key.dtype) for x in of_keys)
        return of_query.to(query.dtype), of_key, of_value, None


def by_pytorch(mesh, texts, rotation):
    """PyTorch's own, for CUDA: cuts the texts as ``mine`` does, and scaled_dot_product_attention calls the others."""
    set_rotate_method(rotation)
    return context_parallel(mesh, buffers=texts, buffer_seq_dims=[1] * len(texts))


class RingAttention(nn.Module):
    """A Llama's attention for a part of the sequence; it takes over the weights of a ``RotaryAttention``.

    Without a group it is for ``by_pytorch``. ``repeats`` keys and values for every head of queries before they travel.
    """

    def __init__(self, whole, positions, group=None, *, repeats=False):
        super().__init__()
        self.query, self.key = whole.query, whole.key
        self.value, self.out = whole.value, whole.out
        self.heads, self.kv_heads, self.base = whole.heads, whole.kv_heads, whole.base
        self.positions, self.group, self.repeats = positions, group, repeats

    def forward(self, x):
        batch, tokens, _ = x.shape
        query, key, value = (
            linear(x).view(batch, tokens, heads, -1).transpose(1, 2)
            for linear, heads in (
                (self.query, self.heads),
                (self.key, self.kv_heads),
                (self.value, self.kv_heads),
            )
        )
        query, key = (rotate(part, self.base, self.positions) for part in (query, key))
        if self.repeats:
            key, value = (widened(x, self.heads) for x in (key, value))
        if self.group is None:
            # By its full name, for context_parallel puts another function there.
            attention = functional.scaled_dot_product_attention
            mixed = attention(query, key, value, is_causal=True, enable_gqa=True)
        else:
            mixed = Ring.apply(query, key, value, self.group)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))
