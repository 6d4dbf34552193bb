"""The tensors that are alive at a moment of a step."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from memlab.categories import Category
from memlab.trace import Event, Storage, Trace
from memlab.units import format_bytes


class Alive(NamedTuple):
    """A tensor that is alive at a moment: what it is, its bytes, and the event that allocated it in this step."""

    storage: Storage
    bytes: int
    born: Event | None

    @property
    def name(self) -> str:
        """The loop's variable and what made the tensor, as far as either is known: ``"logits (head mm)"``."""
        storage, born = self.storage, self.born
        made = storage.name or (f"{born.module} {born.op.removeprefix('aten.')}".strip() if born else "")
        return f"{storage.variable} ({made})" if storage.variable and made else storage.variable or made


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


def alike(name: str) -> str:
    """The name that modules of one kind share: ``"blocks.*.mlp"``."""
    return re.sub(r"\b\d+\b", "*", name)


def largest_kinds(trace: Trace, count: int) -> Iterator[str]:
    """Say what takes the most at the peak, or where memory ran out: tensors of one size that alike modules made are one
    kind, ``"12 x 96.0 MiB  blocks.*.mlp.1 gelu, 8 x 1024 x 3072 float32 (activation)"``.
    """
    kinds: defaultdict[tuple[object, ...], list[Alive]] = defaultdict(list)
    for one in alive(trace, len(trace.events) if trace.oom else trace.peak_index):
        if one.name and one.storage.category is not Category.WORKSPACE:
            kinds[alike(one.name), one.bytes, *one.storage[1:4]].append(one)
    for group in sorted(kinds.values(), key=lambda group: -len(group) * group[0].bytes)[:count]:
        first = group[0]
        name = first.name if len(group) == 1 else alike(first.name)
        shape = " x ".join(map(str, first.storage.shape))
        what = ", ".join(filter(None, [name, f"{shape} {first.storage.dtype}".strip()]))
        yield f"{len(group):>4} x {format_bytes(first.bytes):>8}  {what} ({first.storage.category})"
