"""The memory of the predicted machine's host: bytes of the tensors that a loop makes there."""

import weakref
from functools import partial
from typing import Any

import torch

SMALLEST = 2**16  # bytes; below this a storage is not worth following


class HostMemory:
    """Follows the storages of the host that operators give: those that are real, and those without numbers.

    What is mapped from a file, PyTorch itself, Python's objects and the rounding of pinned blocks are not in it.

    Attributes:
        peak: bytes, the most that lived at one time.
    """

    def __init__(self) -> None:
        self.peak = self._live = 0
        self._refs: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def see(self, out: Any) -> None:
        """Follow what an operator gives, where it is a tensor of the host or several."""
        for item in out if isinstance(out, tuple | list) else (out,):
            if isinstance(item, torch.Tensor) and item.device.type == "cpu" and item.layout is torch.strided:
                self._follow(item.untyped_storage())

    def _follow(self, storage: torch.UntypedStorage) -> None:
        nbytes, key = storage.nbytes(), id(storage)
        if nbytes < SMALLEST or key in self._refs:
            return
        self._refs[key] = weakref.ref(storage, partial(self._freed, key, nbytes))
        self._live += nbytes
        self.peak = max(self.peak, self._live)

    def _freed(self, key: int, nbytes: int, _: object) -> None:
        del self._refs[key]
        self._live -= nbytes
