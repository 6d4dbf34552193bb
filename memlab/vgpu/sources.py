"""The sources of the numbers that a call of a model reads, followed while it is written down (``repeats.py``)."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.internals import FakeTensor, disable_modes, tree_leaves
from memlab.vgpu.values import Value, value_of

_ELSEWHERE = -1  # in the place of an argument's place


class Sources:
    """The arguments of a call that known numbers are made from.

    Args:
        arguments: tensors of the call, by place.

    Attributes:
        deciding: places of the arguments that numbers are made from which the call has read. With the same numbers in
            these it would read the same again.
    """

    def __init__(self, arguments: list[torch.Tensor]):
        self.deciding: set[int] = set()
        self._digests = [digest(tensor) for tensor in arguments]
        self._places: dict[Any, set[int]] = {}  # by the origin of a value
        for place, tensor in enumerate(arguments):
            if (value := value_of(tensor)) is not None:
                self._places.setdefault(value.origin, set()).add(place)

    def follow(self, given: Any, made: Iterable[Value]) -> None:
        """An operator has made values of what it was given."""
        places = self._of(given)
        for value in made:
            self._places.setdefault(value.origin, set()).update(places)

    def read(self, given: Any) -> bool:
        """Values are read that are known for certain. Return True if they are made of the call's arguments alone."""
        places = self._of(given)
        self.deciding |= places - {_ELSEWHERE}
        return _ELSEWHERE not in places

    def digests(self, places: Iterable[int]) -> tuple[Any, ...]:
        """Return those of some arguments, as they were when the call began."""
        return tuple(self._digests[place] for place in places)

    def _of(self, given: Any) -> set[int]:
        values = (value_of(leaf) for leaf in tree_leaves(given) if isinstance(leaf, FakeTensor))
        places = (self._places.get(value.origin, {_ELSEWHERE}) for value in values if value is not None)
        return set().union(*places)


def digest(tensor: torch.Tensor) -> Any:
    """Return what tells the numbers of a tensor on the card from others; None where they are not known for certain."""
    value = value_of(tensor)
    if value is None or not value.origin.certain:
        return None
    with disable_modes():
        numbers = value.tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(numbers.tobytes()).digest()
