"""The list of loops, and what is known of each beforehand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Train = Callable[..., Any]


@dataclass(frozen=True)
class Loop:
    """One training loop.

    Attributes:
        build: makes ``train``, and what a reader would have made before it: modules, optimizers, tensors.
        differs: why a card runs other operators than the CPU, so that their bytes do not compare; "" if they do.
        refused: the words with which a prediction refuses it; "" if it is predicted.
        cuda_only: it names CUDA outright and cannot run on the CPU.
        warns: a warning of PyTorch's that the loop brings about, as a regular expression.
    """

    name: str
    build: Callable[[], tuple[Train, tuple]]
    differs: str = ""
    refused: str = ""
    cuda_only: bool = False
    warns: str = ""


LOOPS: list[Loop] = []

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
        LOOPS.append(Loop(train.__name__, lambda: (train, ()), **known))
        return train

    return add


def with_outside(**known: Any) -> Callable[[Callable], Callable]:
    """``build()`` makes what is there before training, and returns ``(train, (what, is, there))``."""

    def add(build: Callable) -> Callable:
        LOOPS.append(Loop(build.__name__, build, **known))
        return build

    return add
