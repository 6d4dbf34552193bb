"""How long a step probably takes: the roofline with an efficiency for each kind of operator.

Kernels reach a part of the card's peak, each kind its own part; none is shorter than some microseconds; and the host
has to launch them, which it does meanwhile, so the slower of the two counts. The parts were fitted on a third of the
published step times in ``tests/published/times.json``; ``README.md`` beside ``vgpu`` says how far off the rest are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from memlab.vgpu.time.roofline import flops_per_second
from memlab.vgpu.time.speeds import Speed
from memlab.vgpu.time.work import Kind, Work


@dataclass(frozen=True)
class Efficiency:
    """Parts of what the data sheet promises, and seconds.

    Attributes:
        products, attention, convolutions: on tensor cores.
        plain: of products and convolutions outside of them.
        memory: of bytes to and from the card's memory.
        bus: of bytes between host and card.
        kernel: seconds that the smallest kernel takes.
        launch: seconds in which the host gives the card an operator.
    """

    products: float = 0.6
    attention: float = 0.4
    convolutions: float = 0.4
    plain: float = 0.8
    memory: float = 0.75
    bus: float = 0.5
    kernel: float = 4e-6
    launch: float = 12e-6


def likely_seconds(
    streams: Mapping[int, Mapping[Work, int]], speed: Speed, efficiency: Efficiency = Efficiency()
) -> float:
    """Seconds for what was given to each stream, how often each."""
    of_card = max(
        (sum(_seconds(work, speed, efficiency) * count for work, count in given.items()) for given in streams.values()),
        default=0.0,
    )
    of_host = efficiency.launch * sum(sum(given.values()) for given in streams.values())
    return max(of_card, of_host)


def _seconds(work: Work, speed: Speed, efficiency: Efficiency) -> float:
    if work.kind in (Kind.TO_CARD, Kind.TO_HOST):
        return efficiency.kernel + work.read / (efficiency.bus * speed.bus)
    seconds = (work.read + work.written) / (efficiency.memory * speed.memory)
    if work.flops:
        peak = flops_per_second(work, speed)
        seconds = max(seconds, work.flops / (peak * _part(work, peak, speed, efficiency)))
    return efficiency.kernel + seconds


def _part(work: Work, peak: float, speed: Speed, efficiency: Efficiency) -> float:
    if peak == speed.fp32:
        return efficiency.plain
    parts = {Kind.ATTENTION: efficiency.attention, Kind.CONVOLUTION: efficiency.convolutions}
    return parts.get(work.kind, efficiency.products)
