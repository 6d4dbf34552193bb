"""Storages that Python resizes, as FSDP does to free its parameters: no operator runs, so no dispatch mode sees it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from memlab.patching import Change, Patches

See = Callable[[torch.UntypedStorage], None]

_followers: list[See] = []


@contextmanager
def resizes_seen(see: See) -> Iterator[None]:
    """A context in which ``see`` is given every storage of the process that ``UntypedStorage.resize_`` has resized."""
    with _PATCHES:
        _followers.append(see)
        try:
            yield
        finally:
            _followers.remove(see)


def _changes() -> Iterator[Change]:
    real = torch.UntypedStorage.resize_

    def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        resized = real(storage, size)
        for see in list(_followers):
            see(storage)
        return resized

    yield torch.UntypedStorage, "resize_", resize_


_PATCHES = Patches(_changes)
