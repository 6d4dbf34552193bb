"""Collectives of ``torch.distributed``: how many bytes a rank sends, and which tensors they go through.

With the ring algorithms, as NCCL counts them (NVIDIA/nccl-tests, doc/PERFORMANCE.md): of ``n`` ranks each sends
``2 (n - 1) / n`` of what is reduced to all, ``(n - 1) / n`` of what is gathered in all or reduced before it is
scattered. What is sent from one rank to another counts once, at the sender.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from memlab.tracking.internals import ranks_of_group, size_of_group


@dataclass(frozen=True)
class Collective:
    """The traffic of one operator of ``torch.distributed``.

    Attributes:
        tensors, group: which arguments are the tensors whose bytes count, and the ranks that take part.
        times: bytes sent for ``n`` bytes, a pair of what they are multiplied with and divided by.
        keeps: whether the tensors are buffers that exist for it, such as the buckets of DistributedDataParallel.
        receiver: which argument is the one rank that it sends to, by its number in the group.
        is_ring: what a rank sends goes to its neighbour, and on from there; else to each rank its part.
    """

    tensors: int
    group: int
    times: Callable[[int], tuple[int, int]]
    keeps: bool = True
    receiver: int | None = None
    is_ring: bool = True

    def buffers(self, args: tuple[Any, ...]) -> Iterator[Tensor]:
        """The tensors that it works on, where they are made for it."""
        return _tensors(args[: self.group]) if self.keeps else iter(())

    def sent(self, args: tuple[Any, ...]) -> int:
        """Bytes that this rank sends."""
        ranks = size_of_group(args[self.group])
        multiplied, divided = self.times(ranks)
        return sum(tensor.nbytes for tensor in _tensors(args[self.tensors])) * multiplied // divided if ranks > 1 else 0

    def machines(self, args: Sequence[Any]) -> Counter[int]:
        """Return how many of the ranks that take part each machine has."""
        ranks = ranks_of_group(args[self.group])
        if self.receiver is not None:
            ranks = [torch.distributed.get_rank(), ranks[args[self.receiver]]]
        return Counter(map(_machine, ranks))

    def sent_to_other_machines(self, args: tuple[Any, ...]) -> int:
        """Bytes of these that leave this rank's machine.

        Of a ring, one rank of a machine sends to another machine for all of the group that are there, and each of them
        counts its share.
        """
        machines = self.machines(args)
        if len(machines) == 1:
            return 0
        sent, near, ranks = self.sent(args), machines[_machine(torch.distributed.get_rank())], machines.total()
        if self.receiver is not None:
            return sent
        return sent // near if self.is_ring else sent * (ranks - near) // (ranks - 1)


def _machine(rank: int) -> int:
    """The number of a rank's machine: torchrun numbers the ranks machine by machine."""
    return rank // int(os.environ.get("LOCAL_WORLD_SIZE", torch.distributed.get_world_size()))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _reduced_to_all(ranks: int) -> tuple[int, int]:
    return 2 * (ranks - 1), ranks


def _but_its_own(ranks: int) -> tuple[int, int]:
    return ranks - 1, ranks


def _to_all_others(ranks: int) -> tuple[int, int]:
    return ranks - 1, 1


def _once(ranks: int) -> tuple[int, int]:
    return 1, 1


def _known() -> dict[Any, Collective]:
    c10d, functional = torch.ops.c10d, torch.ops._c10d_functional
    return {
        c10d.allreduce_: Collective(0, 1, _reduced_to_all),
        c10d.allreduce_coalesced_: Collective(0, 1, _reduced_to_all),
        c10d._allgather_base_: Collective(0, 2, _but_its_own),
        c10d.allgather_: Collective(0, 2, _but_its_own),
        c10d.allgather_coalesced_: Collective(0, 2, _but_its_own),
        c10d.allgather_into_tensor_coalesced_: Collective(0, 2, _but_its_own),
        c10d._reduce_scatter_base_: Collective(1, 2, _but_its_own),
        c10d.reduce_scatter_: Collective(1, 2, _but_its_own),
        c10d.reduce_scatter_tensor_coalesced_: Collective(1, 2, _but_its_own),
        c10d.alltoall_: Collective(1, 2, _but_its_own, is_ring=False),
        c10d.alltoall_base_: Collective(1, 2, _but_its_own, is_ring=False),
        c10d.broadcast_: Collective(0, 1, _once),
        c10d.reduce_: Collective(0, 1, _once),
        c10d.send: Collective(0, 1, _once, keeps=False, receiver=2),
        functional.all_reduce: Collective(0, 2, _reduced_to_all, keeps=False),
        functional.all_reduce_: Collective(0, 2, _reduced_to_all, keeps=False),
        functional.all_reduce_coalesced: Collective(0, 2, _reduced_to_all, keeps=False),
        functional.all_gather_into_tensor: Collective(0, 2, _to_all_others, keeps=False),
        functional.all_gather_into_tensor_coalesced: Collective(0, 2, _to_all_others, keeps=False),
        functional.reduce_scatter_tensor: Collective(0, 3, _but_its_own, keeps=False),
        functional.reduce_scatter_tensor_coalesced: Collective(0, 3, _but_its_own, keeps=False),
        functional.all_to_all_single: Collective(0, 3, _but_its_own, keeps=False, is_ring=False),
        functional.broadcast: Collective(0, 2, _once, keeps=False),
    }


COLLECTIVES: dict[Any, Collective] = _known() if torch.distributed.is_available() else {}
