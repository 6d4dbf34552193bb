"""The least time that a card can take for a step: a roofline for each operator, summed.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009): an operator takes at least
its floating-point operations at the card's peak, and at least its bytes at the memory's bandwidth, whichever is more.

It is a lower bound, so whatever may be free is:

- The second-level cache: of what an operator reads, as much as it holds may be there from before; of what it writes, as
  much may still be there afterwards. A step of small tensors has no bytes to wait for.
- The launches of kernels, and the host. A step of small operators takes longer.
- Collectives: ranks wait for each other, and cards are connected in many ways.
- Arithmetic that is no product: sums and exponentials go by while bytes come and go.

A convolution needs the multiplications of Winograd's algorithm. Float32 products run on tensor cores where
``torch.backends`` allow that when they run. Operators of one stream wait for each other; streams may run side
by side, so the longest counts. A card whose clock is raised over its data sheet's boost can be faster.
"""

from collections.abc import Mapping
from functools import partial
from math import fsum

from memlab.vgpu.cards import Speed
from memlab.vgpu.time.operator_work import Kind, Work
from memlab.vgpu.time.speeds import of_attention, of_products


def least_seconds(streams: Mapping[int, Mapping[Work, int]], speed: Speed) -> float:
    """The least time for what was given to each stream, how often each."""
    of_one = partial(_least, speed=speed)
    # fsum: what sum gives differs in its last digit between Python 3.11 and 3.12.
    totals = (fsum(of_one(work) * count for work, count in given.items()) for given in streams.values())
    return max(totals, default=0.0)


def _least(work: Work, speed: Speed) -> float:
    if work.kind in (Kind.TO_CARD, Kind.TO_HOST):
        return work.read / speed.bus
    moved = max(0, work.read - speed.cache) + max(0, work.written - speed.cache)
    return max(work.least_flops / flops_per_second(work, speed), moved / speed.memory)


def flops_per_second(work: Work, speed: Speed) -> float:
    """The card's peak for what an operator multiplies."""
    if work.kind is Kind.ATTENTION:
        return of_attention(speed, work.dtype)
    return of_products(speed, work.dtype, work.tf32)
