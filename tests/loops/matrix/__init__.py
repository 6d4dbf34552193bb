"""The matrix: which loops are recorded, with which settings. A module is a family of loops and its ``cases()``."""

from collections.abc import Iterator

from tests.loops.case import Case
from tests.loops.matrix import (
    allocator,
    attention,
    blocks,
    convolutions,
    derivatives,
    embeddings,
    habits,
    layers,
    libraries,
    losses,
    nets,
    optimizers,
    recurrent,
    walls,
)

# nets first: should time run out, its first cases are worth the most. What others leave on the card would be missed by
# the cases that fill it, so these come next, and what is known
# to leave something comes last.
FAMILIES = (
    nets,
    walls,
    allocator,
    convolutions,
    libraries,
    attention,
    blocks,
    losses,
    optimizers,
    embeddings,
    layers,
    habits,
    recurrent,
    derivatives,
)


def matrix() -> Iterator[Case]:
    """Every case, whether or not its library is here; some twice."""
    for family in FAMILIES:
        yield from family.cases()
