"""The time of collectives: what a rank sends, by the ring algorithms, over the slowest link on its way.

Ranks are taken to be numbered machine by machine, and cards of a machine that send to others share its network. A
collective begins when what was launched before it is done, and goes on beside what is launched after it, as NCCL's do:
DistributedDataParallel's in backward, FSDP's one layer ahead. One that the program waits for at once is waited for, and
so is the last of a step, before the optimizer.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from memlab.tracking.collectives import Collective
from memlab.tracking.internals import ranks_of_group
from memlab.units import format_bytes, format_seconds
from memlab.vgpu.cards import GIGA, Speed
from memlab.vgpu.facade import CARDS_OF_A_MACHINE
from memlab.vgpu.time.estimate import FITTED

WAIT = "_c10d_functional.wait_tensor"
# Who waits for one other rank waits for what that one computes, which a prediction of one rank does not know.
IN_TURN = {"c10d.send", "c10d.recv_", "c10d.recv_any_source_"}


class Link:
    """A rank's link to the others, in one step.

    Attributes:
        free: when it has sent what it was given, in seconds of the step.
    """

    def __init__(self, speed: Speed):
        self._speed = speed
        self.start()

    def start(self) -> None:
        """Begin a step."""
        self.free = 0.0
        self._busy = 0.0  # seconds
        self._sent = 0  # bytes
        self._reached = math.inf  # bytes a second of the slowest link

    def send(self, collective: Collective, args: Sequence[Any], now: float) -> None:
        """A collective is launched."""
        ranks = ranks_of_group(args[collective.group])
        if len(ranks) == 1:
            return
        sent, reached = collective.sent(tuple(args)), self._between(ranks)
        seconds = sent / (FITTED.link * reached) + FITTED.hop * math.ceil(math.log2(len(ranks)))
        self.free = max(self.free, now) + seconds
        self._busy += seconds
        self._sent += sent
        self._reached = min(self._reached, reached)

    def _between(self, ranks: Sequence[int]) -> float:
        """Bytes a second from one of these ranks to the next."""
        machines = Counter(rank // CARDS_OF_A_MACHINE for rank in ranks)
        if len(machines) == 1:
            return self._speed.link
        return min(self._speed.link, self._speed.network * min(machines.values()) / CARDS_OF_A_MACHINE)

    def sentence(self, exposed: float) -> str:
        """Return a sentence on what the estimate assumes of other ranks; ``exposed``: seconds without overlap."""
        if not self._sent:
            return ""
        busy, overlap = format_seconds(self._busy), format_seconds(max(0.0, self._busy - exposed))
        return (
            f"Sending {format_bytes(self._sent)} to other ranks takes about {busy} of a step, and {overlap} of that "
            f"overlap with computation (assumed: machines of {CARDS_OF_A_MACHINE} cards, "
            f"{self._reached / GIGA:.3g} GB/s between the ranks, none of them late)"
        )
