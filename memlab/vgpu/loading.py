"""``torch.load`` inside a prediction: the file is read for real, and what belongs on the card is copied there.

PyTorch's own way under a ``FakeTensorMode`` leaves out all numbers, also those that steer the loop (an optimizer's step
count), and makes tensors of which no operator tells the tracker.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from memlab.vgpu.backend import DEVICE
from memlab.vgpu.mode import is_predicting, names_cuda


def loading(load: Callable) -> Callable:
    """``torch.load`` that does so in a prediction, and is as before outside."""

    @functools.wraps(load)
    def loaded(f, map_location=None, *args, **kwargs):
        if not is_predicting():
            return load(f, map_location, *args, **kwargs)
        places = _Places(map_location)
        with _disable_current_modes():
            found = load(f, places, *args, **kwargs)
        return tree_map(places.put, found)

    return loaded


class _Places:
    """What ``torch.load`` asks where each storage belongs. Every one stays on the host, but is noted."""

    def __init__(self, map_location: Any):
        self._map_location = map_location
        self._for_the_card: dict[int, torch.UntypedStorage] = {}
        self._on_the_card: dict[int, torch.Tensor] = {}

    def __call__(self, storage: torch.UntypedStorage, saved_from: str) -> torch.UntypedStorage:
        wanted = self._map_location
        if callable(wanted):
            return wanted(storage, saved_from)
        if isinstance(wanted, dict):
            wanted = wanted.get(saved_from, saved_from)
        elif wanted is None:
            # On the card's own machine, what was saved from CUDA comes back there.
            wanted = DEVICE if saved_from.startswith("cuda") else saved_from
        wanted = torch.device(wanted)
        if wanted.type == "cuda":
            raise names_cuda(str(wanted))
        if wanted.type == DEVICE.type:
            self._for_the_card[storage._cdata] = storage
        return storage

    def put(self, value: Any) -> Any:
        """A tensor or a module of what was loaded, where it belongs; tensors that share a storage go on doing so."""
        if isinstance(value, nn.Module):
            wanted = any(tensor.untyped_storage()._cdata in self._for_the_card for tensor in value.parameters())
            return value.to(DEVICE) if wanted else value
        if not isinstance(value, torch.Tensor) or value.untyped_storage()._cdata not in self._for_the_card:
            return value
        if not value.dim():  # an optimizer's step count: it must keep its value, and a card's numbers have none
            return value
        storage = value.untyped_storage()
        if storage._cdata not in self._on_the_card:
            with _disable_current_modes():
                whole = torch.empty(0, dtype=value.dtype).set_(storage)
            self._on_the_card[storage._cdata] = whole.to(DEVICE)
        there = self._on_the_card[storage._cdata]
        if there.dtype is not value.dtype:
            there = there.view(value.dtype)
        there = there.as_strided(value.shape, value.stride(), value.storage_offset())
        return nn.Parameter(there, value.requires_grad) if isinstance(value, nn.Parameter) else there
