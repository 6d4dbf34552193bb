"""Autograd's two counts, brought level before a case.

Each thread counts the nodes that it makes, and on CUDA backward has a thread of its own. Where a backward pass is
itself differentiated, both counts decide which nodes are run first, and so what the peak is
(``memlab/vgpu/node_order.py``). In a process of its own a case would begin with two counts of 0.
"""

from typing import Any

import torch

from memlab.tracking.internals import next_node_number


def bring_level(device: torch.device) -> None:
    """Make nodes until this thread and the one that runs backward on ``device`` have made as many."""
    start = torch.zeros((), device=device, requires_grad=True)
    reached: list[int] = []
    _Counting.apply(start, next_node_number() + 1, reached).backward()  # type: ignore[no-untyped-call]
    _count_to(reached[0])


def _count_to(number: int) -> None:
    leaf = torch.zeros((), requires_grad=True)
    for _ in range(number - next_node_number()):
        leaf.view_as(leaf)


class _Counting(torch.autograd.Function):
    """Its backward counts to a number, and says how far its thread has come."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, number: int, reached: list[int]) -> torch.Tensor:
        ctx.number, ctx.reached = number, reached
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        with torch.enable_grad():
            _count_to(ctx.number)
        ctx.reached.append(next_node_number())
        return gradients[0], None, None
