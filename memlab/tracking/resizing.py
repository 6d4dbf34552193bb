"""Storages that Python resizes, which no operator shows: FSDP frees a gathered parameter by giving it no bytes."""

from collections.abc import Iterator
from typing import Any

import torch

from memlab.patching import Change, Patches
from memlab.tracking.internals import modes_of_this_thread
from memlab.tracking.storages import Storages


def _changes() -> Iterator[Change]:
    resize_ = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        result = resize_(storage, *args, **kwargs)
        for mode in modes_of_this_thread():
            if isinstance(mode, Storages):
                mode.resized(storage)
        return result

    yield torch.UntypedStorage, "resize_", resized


SEEN = Patches(_changes)  # a context: the tracker of a thread is told of each storage that is resized there
