"""The list of ordinary loops, which their modules fill."""

from collections.abc import Callable
from typing import Any

from tests.loops.case import Case, Train

LOOPS: list[Case] = []

ATTENTION = "a card has attention kernels of its own"
DROPOUT = "a card's dropout keeps a mask of bools, the CPU's one of floats"
RNN = "a card runs a recurrent layer as one cuDNN operator"
FOREACH = "on a card optimizers update all parameters at once"
HOST = "a CPU run counts the data set too, which lies on the host"
MOVED = "on a card .cpu() copies, and what was saved keeps the old bytes"
CHOSEN = "how much is chosen depends on numbers that a prediction does not have: it chooses nothing"
GUESSED = "the sizes depend on numbers that a prediction does not have"


def ordinary(**known: Any) -> Callable[[Train], Train]:
    """``train(device)`` is a loop that makes all it needs."""

    def add(train: Train) -> Train:
        LOOPS.append(Case(train, **known))
        return train

    return add


def with_outside(**known: Any) -> Callable[[Callable], Callable]:
    """``build()`` makes what is there before training, and returns ``(train, (what, is, there))``."""

    def add(build: Callable) -> Callable:
        LOOPS.append(Case(build, builds=True, **known))
        return build

    return add
