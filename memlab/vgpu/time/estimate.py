"""The estimated time of a step: the roofline with an efficiency for each kind of operator.

Kernels reach a part of the card's peak, each kind its own part; none is shorter than some microseconds; and the host
has to launch them, which it does meanwhile, so the slower of the two counts. Kernels wait for all their bytes: nothing
is taken to be in the cache. The parts are those that fit a third of the published step times in
``tests/published/times.json`` best (``python -m tests.published.times --fit``); the README of ``vgpu`` says how far
off the rest are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

import torch

from memlab.vgpu.cards import Speed
from memlab.vgpu.time.operator_work import Kind, Work
from memlab.vgpu.time.roofline import flops_per_second


@dataclass(frozen=True)
class Efficiency:
    """Parts of what the data sheet promises, and seconds.

    Attributes:
        products: of matrix products on tensor cores.
        unaligned: of that, for half-precision products of sizes that are no multiple of 8.
        convolutions: on tensor cores.
        depthwise: of depthwise convolutions, whose kernels multiply outside of tensor cores, in half precision too.
        plain: of products and other convolutions outside of them.
        memory: of bytes to and from the card's memory.
        attention: of fused attention. One published time has it, so it was not fitted: what Dao, "FlashAttention-2"
            (2023), reaches forward and backward with 1,000 tokens.
        bus: of bytes between host and card: what memory that is not pinned reaches. Not fitted.
        link: of bytes from card to card: nccl-tests shows 230 to 250 GB/s of 300 on eight A100. Not fitted.
        hop: seconds from one rank to the next, of which a collective takes one whenever the ranks double. Not fitted.
        kernel: seconds that a kernel takes beside its work, and
        launch: in which the host gives the card an operator: some microseconds, as profiles show. Not fitted.
    """

    products: float = 0.55
    unaligned: float = 0.26
    convolutions: float = 0.26
    depthwise: float = 0.07
    plain: float = 0.69
    memory: float = 0.68
    attention: float = 0.4
    bus: float = 0.5
    link: float = 0.8
    hop: float = 1e-5
    kernel: float = 5e-6
    launch: float = 12e-6


FITTED = Efficiency()


def likely_seconds(streams: Mapping[int, Mapping[Work, int]], speed: Speed, efficiency: Efficiency = FITTED) -> float:
    """Seconds for what was given to each stream, how often each."""
    of_card = max(
        (
            fsum(likely_seconds_of(work, speed, efficiency) * count for work, count in given.items())
            for given in streams.values()
        ),
        default=0.0,
    )
    of_host = efficiency.launch * sum(sum(given.values()) for given in streams.values())
    return max(of_card, of_host)


def likely_seconds_of(work: Work, speed: Speed, efficiency: Efficiency = FITTED) -> float:
    """Seconds of the card for one operator."""
    if work.kind in (Kind.TO_CARD, Kind.TO_HOST):
        return efficiency.kernel + work.read / (efficiency.bus * speed.bus)
    moved = (work.read + work.written) * (3 if work.turned else 1)  # read and written once more
    seconds = moved / (efficiency.memory * speed.memory)
    if work.flops:
        seconds = max(seconds, work.flops / _reached(work, speed, efficiency))
    return efficiency.kernel + seconds


def _reached(work: Work, speed: Speed, efficiency: Efficiency) -> float:
    """Floating-point operations per second."""
    if work.kind is Kind.DEPTHWISE:
        return efficiency.depthwise * speed.fp32
    peak = flops_per_second(work, speed)
    if peak == speed.fp32:
        return efficiency.plain * peak
    if work.kind is Kind.ATTENTION:
        return efficiency.attention * peak
    if work.kind is Kind.CONVOLUTION:
        return efficiency.convolutions * peak
    return efficiency.products * peak * (1 if work.aligned or work.dtype is torch.float32 else efficiency.unaligned)
