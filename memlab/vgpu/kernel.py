"""Memory in the order of a kernel: what it allocates before, between and after its results."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memlab.allocator import Block, CachingAllocator, OutOfRoom


@dataclass(frozen=True)
class Result:
    """A result of the operator is allocated; of several, the one with this index."""

    index: int = 0


@dataclass(frozen=True)
class Hold:
    """So many bytes are allocated, until that number is freed."""

    nbytes: int
    number: int


@dataclass(frozen=True)
class Free:
    """What is held under these numbers is freed, in this order."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Workspace:
    """The first of these sizes for which there is memory is allocated and freed."""

    sizes: tuple[int, ...]


Step = Result | Hold | Free | Workspace


def run(steps: Iterable[Step], blocks: CachingAllocator, results: Sequence[Any], see: Callable[[Any], None]) -> None:
    """Take these steps.

    Args:
        steps: what the kernel does, in its order.
        blocks: the card's allocator.
        results: of the operator; those that were not wanted are None.
        see: is told of each result when it is allocated.

    Raises:
        OutOfRoom: there is no memory for one of them.
    """
    held: dict[int, Block | None] = {}
    for step in steps:
        if isinstance(step, Result):
            if results[step.index] is not None:
                see(results[step.index])
        elif isinstance(step, Hold):
            held[step.number] = blocks.allocate(step.nbytes)
        elif isinstance(step, Free):
            for number in step.numbers:
                _release(blocks, held.pop(number))
        else:
            _release(blocks, _first_that_fits(blocks, step.sizes))


def _first_that_fits(blocks: CachingAllocator, sizes: tuple[int, ...]) -> Block | None:
    for size in sizes[:-1]:
        try:
            return blocks.allocate(size)
        except OutOfRoom:
            continue
    return blocks.allocate(sizes[-1])


def _release(blocks: CachingAllocator, block: Block | None) -> None:
    if block is not None:  # of 0 bytes
        blocks.release(block)
