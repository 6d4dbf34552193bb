"""A cache of a panel's predictions: bounded in bytes, the least recently used is dropped first."""

import zlib
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from memlab.trace import Trace
from memlab.units import KIB, MIB

MOST_BYTES = 16 * MIB  # some 2,000 predictions of GPT-2 small
ENTRY = 2 * KIB  # what one takes beside its packed trace, more or less
LOOKED_AT = 500  # when something alike is looked for


@dataclass(frozen=True)
class Case:
    """The inputs of one prediction: a model with the values of its controls, on a card.

    Attributes:
        chosen: the value of each control, by name.
        model: its name on the panel.
        gpu: the card's name.
        is_endless: whether that card has room for everything.
    """

    chosen: Mapping[str, Any]
    model: str
    gpu: str
    is_endless: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal cases: 1, 1.0 and True differ, and what is chosen need not be hashable."""
        return self.gpu, self.model, self.is_endless, *(f"{name}={value!r}" for name, value in self.chosen.items())

    def but_for(self, name: str) -> tuple[Any, ...]:
        """Equal for cases that differ in nothing but this control, and in how large the card is."""
        chosen = (f"{other}={value!r}" for other, value in self.chosen.items() if other != name)
        return self.gpu, self.model, *chosen


class Known(NamedTuple):
    """A prediction, and what is to be said of it that it does not say itself."""

    trace: Trace
    warning: str


class Entry(NamedTuple):
    """A prediction, packed."""

    case: Case
    packed: bytes
    warning: str
    fits: bool


class Remembered:
    """The predictions of one panel, packed: one of GPT-2 small takes 5 KB.

    Whether ``train`` has changed, or what it reads, cannot be known. So nothing is shared between panels, and
    :meth:`forget` is for whoever sees that other code has run.
    """

    def __init__(self, most_bytes: int = MOST_BYTES):
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, Entry] = OrderedDict()
        self.nbytes = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def put(self, case: Case, known: Known) -> None:
        """Remember it; what has not been asked for the longest is forgotten where there is no room."""
        self._drop(case.key)
        packed = zlib.compress(known.trace.to_json().encode(), level=1)
        self._kept[case.key] = Entry(case, packed, known.warning, known.trace.oom is None)
        self.nbytes += len(packed) + ENTRY
        while self.nbytes > self._most_bytes:
            self._drop(next(iter(self._kept)))

    def get(self, key: Hashable) -> Known | None:
        """Return the prediction of the case with this key, or None if it is not in the cache."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        entry = self._kept[key]
        return Known(Trace.from_json(zlib.decompress(entry.packed).decode()), entry.warning)

    def fits(self, key: Hashable) -> bool | None:
        """Return True if the case with this key fits the card; None if it is not in the cache."""
        return self._kept[key].fits if key in self._kept else None

    def in_line(self, case: Case, name: str) -> list[Case]:
        """Of the newest that fit, those that differ from it in this control only, and in how large the card is."""
        newest = islice(reversed(self._kept.values()), LOOKED_AT)
        return [entry.case for entry in newest if entry.fits and entry.case.but_for(name) == case.but_for(name)]

    def forget(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.nbytes = 0

    def _drop(self, key: Hashable) -> None:
        if key in self._kept:
            self.nbytes -= len(self._kept.pop(key).packed) + ENTRY
