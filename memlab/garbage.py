"""Python's collector, kept from walking through all of PyTorch's own objects, for longer than a small step takes."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_for_good = False


def freeze_for_good() -> None:
    """Keep the collector from all objects that there are, until the process ends.

    What it looks at it also writes into, and then a process that has been forked shares it no more.
    """
    global _for_good
    gc.collect()
    gc.freeze()
    _for_good = True


@contextmanager
def frozen() -> Iterator[None]:
    """A context in which the collector leaves alone what was there before, unless somebody has seen to that."""
    if _for_good or gc.get_freeze_count():  # it counts one by one, which takes longer than a small run
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
