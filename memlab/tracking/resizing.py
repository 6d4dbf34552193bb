"""Storages that Python resizes, which no operator shows: FSDP frees a gathered parameter by giving it no bytes."""

from collections.abc import Iterator
from typing import Any

import torch

from memlab.patching import Change, Patches
from memlab.tracking.storages import watching


def _changes() -> Iterator[Change]:
    resize_ = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        result = resize_(storage, *args, **kwargs)
        for tracker in watching():
            tracker.resized(storage)
        return result

    yield torch.UntypedStorage, "resize_", resized


SEEN = Patches(_changes)  # a context: the tracker of a thread is told of each storage that is resized there
