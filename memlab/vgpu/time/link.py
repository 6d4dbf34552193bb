"""The time of collectives: what a rank sends, by the ring algorithms, over the slowest link on its way.

Ranks are taken to be numbered machine by machine, and cards of a machine that send to others share its network. A
collective begins when what was launched before it is done, and goes on beside what is launched after it, as NCCL's do:
DistributedDataParallel's in backward, FSDP's one layer ahead. One that the program waits for at once is waited for, and
so is the last of a step, before the optimizer.

A rank that receives as much as it sends at the same time, whenever it sends, is taken to be one of a ring, all of which
do so at once: this takes its own bytes' time, and is waited for. Who sends or receives alone, as a stage of a pipeline
does at least once in a step, waits for what another rank computes, which a prediction of one rank does not know.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from memlab.tracking.collectives import Collective
from memlab.units import format_bytes, format_seconds
from memlab.vgpu.cards import GIGA, Speed
from memlab.vgpu.facade import CARDS_OF_A_MACHINE
from memlab.vgpu.time.estimate import FITTED

WAIT = "_c10d_functional.wait_tensor"
SEND = "c10d.send"
RECEIVE = {"c10d.recv_", "c10d.recv_any_source_"}


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
        self._pending: list[tuple[str, int]] = []  # sent or received alone so far: which, and bytes
        self._one_sided = False

    def send(self, collective: Collective, args: Sequence[Any], now: float) -> None:
        """A collective is launched."""
        machines = collective.machines(args)
        if machines.total() == 1:
            return
        sent, reached = collective.sent(tuple(args)), self._between(machines)
        seconds = sent / (FITTED.link * reached) + FITTED.hop * math.ceil(math.log2(machines.total()))
        self.free = max(self.free, now) + seconds
        self._busy += seconds
        self._sent += sent
        self._reached = min(self._reached, reached)

    def trade(self, name: str, args: Sequence[Any]) -> bool:
        """Tensors go to one rank, or come from one: ``c10d.send`` or ``c10d.recv_``.

        Returns:
            Whether as many have gone as have come by now.
        """
        size = sum(tensor.nbytes for tensor in args[0])
        if self._pending and self._pending[0][0] != name:
            self._one_sided |= self._pending.pop(0)[1] != size
        else:
            self._pending.append((name, size))
        return not self._pending

    def work_begins(self) -> None:
        """Something is computed: what was not traded by then is not part of a ring."""
        self._one_sided |= bool(self._pending)

    @property
    def takes_turns(self) -> bool:
        """The rank has waited for what another one computes."""
        return self._one_sided or bool(self._pending)

    def _between(self, machines: Counter[int]) -> float:
        """Bytes a second from one rank to the next, of as many as each of these machines has."""
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
