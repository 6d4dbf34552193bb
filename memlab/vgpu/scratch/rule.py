"""What a rule is."""

from collections.abc import Callable, Iterable
from typing import Any

from memlab.vgpu.cards import Card

# Of the card, an operator's arguments and its results: sizes in bytes, in the order in which they are allocated.
Rule = Callable[[Card, tuple[Any, ...], Any], Iterable[int]]
