"""The tensors that are alive at a moment of a step, and the layer that each belongs to."""

import re
from typing import NamedTuple

from memlab.trace import Event, Storage, Trace

# "blocks.3.mlp.0" is in "blocks.3", "transformer.h.3.mlp" in "transformer.h.3", and "head" in "head".
LAYER = re.compile(r"^(?:[^.]+\.)*?[^.]+(\.\d+)|^[^.]+")


class Alive(NamedTuple):
    """A tensor that is alive at a moment: what it is, its bytes, and the event that allocated it in this step."""

    storage: Storage
    bytes: int
    born: Event | None


def alive(trace: Trace, moment: int) -> list[Alive]:
    """Return what is allocated after the first ``moment`` events of the step, the oldest first."""
    counts = [storage.start for storage in trace.storages]
    births: dict[int, int] = {}  # storage: the place of its event
    for place, event in enumerate(trace.events[:moment]):
        if event.storage >= 0:
            if counts[event.storage] == 0:
                births[event.storage] = place
            counts[event.storage] += event.bytes
    living = sorted((storage for storage, count in enumerate(counts) if count > 0), key=lambda one: births.get(one, -1))
    born = {storage: trace.events[place] for storage, place in births.items()}
    return [Alive(trace.storages[one], counts[one], born.get(one)) for one in living]


def part_of(one: Alive) -> str:
    """Return the part of the network that a tensor belongs to: ``"blocks.3"``, ``"head"``, or ``"loss"``.

    A weight and what belongs to it are known by the weight's name; whatever else by the layer that computed it. The
    model itself is named after its class, which begins with a capital letter.
    """
    name = one.storage.name or (one.born.module if one.born else "")
    layer = LAYER.match(name)
    return layer[0] if layer and not name[0].isupper() else "loss"
