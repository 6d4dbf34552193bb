"""Training loops as people write them, none of them for memlab. A module is a kind of loop."""

from tests.loops.ordinary import (  # noqa: F401  they fill the list
    attention,
    autograd,
    averages,
    cuda,
    data,
    generative,
    habits,
    losses,
    modules,
    optimizers,
    saving,
    sequences,
    vision,
)
from tests.loops.ordinary.catalogue import LOOPS as LOOPS
