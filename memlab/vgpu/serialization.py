"""``torch.save`` and ``torch.load`` inside a prediction.

A prediction writes no file: what the loop saves is kept for it to load again. A file that was there before is read for
real, and what belongs on the card is copied there. (PyTorch's own way under a ``FakeTensorMode`` writes zeros, and
reads no numbers, also not those that steer the loop, such as an optimizer's step count.)

Where files are thrown away, as those of a script are, a few bytes are written that say what is kept for them; also to a
buffer, which is put back in the end. So such a file may be copied, and a buffer's bytes written to a file, and loaded.
"""

import copy
import io
import os
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from memlab.tracking.internals import sparse_parts
from memlab.vgpu import values
from memlab.vgpu.current_prediction import Prediction, current
from memlab.vgpu.facade import card_device
from memlab.vgpu.internals import FakeTensor, disable_modes, storage_id, tree_map
from memlab.vgpu.names import CARD
from memlab.vgpu.refusals import where


@dataclass(frozen=True)
class _ModuleOnDisk:
    """A module as a file would have it: another one, on the host."""

    module: nn.Module
    saved_from: str


@dataclass(frozen=True)
class _OnDisk:
    """A tensor as a file would have it: on the host, with the place that it was saved from."""

    tensor: torch.Tensor
    saved_from: str


_KEPT = b"memlab keeps this as "  # how a file begins that stands for what is kept
_FEW = 50  # bytes: as many as such a file has, and some
files_are_thrown_away = False  # whether all that this process writes goes to a folder that is thrown away


def not_writing(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a function that writes arrays: it does so where files are thrown away, and nothing elsewhere."""

    def change(write: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: write(*args, **kwargs) if files_are_thrown_away else note_unwritten(what)

    return change


def note_unwritten(what: str) -> None:
    """Say in the trace that something was not written."""
    current().note(f"{what} at {where()} wrote nothing: a prediction writes no files.")


def save(real_save: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.save`` that writes nothing, and remembers."""

    def saved(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        storages: dict[int, torch.Tensor] = {}
        files = current().files
        number = str(len(files)).encode()
        files[_name(f)] = files[number] = (_reference(f), tree_map(lambda leaf: _to_disk(leaf, storages), obj))
        if isinstance(f, io.BytesIO):
            current().undo.callback(_put_back, f, f.getvalue(), f.tell())
            f.write(_KEPT + number)
        elif not files_are_thrown_away:
            note_unwritten("torch.save")
        else:
            with open(f, "wb") if isinstance(f, str | os.PathLike) else nullcontext(f) as file:
                file.write(_KEPT + number)

    return saved


def load(real_load: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.load`` of what the loop saved itself, or of a file that was there before."""

    def loaded(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        prediction: Prediction = current()
        places = _Places(map_location)
        if (name := _kept(f, prediction)) is not None:
            return tree_map(places.put_again, prediction.files[name][1])
        with disable_modes():
            found = real_load(f, places, *args, **kwargs)
        return tree_map(places.put, found)

    return loaded


def load_safetensors(real_load: Callable[..., Any]) -> Callable[..., Any]:
    """``safetensors.torch.load_file``: read for real, and copied to the card where it is wanted there."""

    def loaded(filename: Any, device: Any = "cpu") -> dict[str, torch.Tensor]:
        with disable_modes():
            found = real_load(filename)
        wanted = device if isinstance(device, str) and device == "cpu" else card_device(device)
        return {name: tensor.to(wanted) for name, tensor in found.items()}

    return loaded


def _name(f: Any) -> Any:
    """Return the path of a file, or of what is open if it has one, else the identity of what is open."""
    path = f if isinstance(f, str | os.PathLike) else getattr(f, "name", None)
    return os.path.abspath(os.fspath(path)) if isinstance(path, str | os.PathLike) else id(f)


def _reference(f: Any) -> Callable[[], Any]:
    """Return what gives the file while it lives: one that is kept alive would be closed later than by PyTorch alone."""
    try:
        return weakref.ref(f)
    except TypeError:
        return lambda: f


def _put_back(buffer: io.BytesIO, before: bytes, place: int) -> None:
    with suppress(ValueError):  # it is closed
        buffer.seek(0)
        buffer.truncate()
        buffer.write(before)
        buffer.seek(place)


def _kept(f: Any, prediction: Prediction) -> Any:
    """By what name that is kept which the loop has saved there; None where it was another who wrote the file."""
    beginning = b""
    with suppress(OSError, ValueError):
        beginning = _beginning(f)
    if beginning.startswith(_KEPT):
        return beginning.removeprefix(_KEPT)
    name = _name(f)
    if name not in prediction.files:
        return None
    reference, _ = prediction.files[name]
    return name if isinstance(name, str) or reference() is f else None


def _beginning(f: Any) -> bytes:
    """A few bytes from where a file, or what is open, would be read."""
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            return file.read(_FEW)
    place = f.tell()
    found: bytes = f.read(_FEW)
    f.seek(place)
    return found


def _to_disk(leaf: Any, storages: dict[int, torch.Tensor]) -> Any:
    """The leaf as a file has it. Tensors that share a storage go on doing so."""
    if isinstance(leaf, nn.Module):
        tensors = {id(tensor): tensor for tensor in (*leaf.parameters(), *leaf.buffers())}
        memo = {key: _to_disk(tensor, storages).tensor for key, tensor in tensors.items()}
        place = next((str(tensor.device) for tensor in tensors.values()), "cpu")
        return _ModuleOnDisk(copy.deepcopy(leaf, memo), place)
    if not isinstance(leaf, torch.Tensor):
        return leaf
    place = str(leaf.device)
    if isinstance(leaf, FakeTensor) and values.has_value(leaf):
        with disable_modes():
            numbers = values.numbers(leaf.detach(), asked=False)
        return _OnDisk(_like(leaf, numbers), place)
    if leaf.layout is torch.sparse_coo:
        return _OnDisk(leaf.cpu(), place)
    storage = leaf.untyped_storage()
    whole = storages.get(storage_id(storage))
    if whole is None:
        flat = leaf.detach().as_strided((storage.nbytes() // leaf.element_size(),), (1,), 0)
        whole = storages[storage_id(storage)] = flat.cpu() if leaf.device == CARD else flat.clone()
    return _OnDisk(_as(whole, leaf), place)


def _as(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The part of a storage that a tensor shows; a parameter where that is one."""
    if whole.dtype is not like.dtype:
        whole = whole.view(like.dtype)
    return _like(like, whole.as_strided(like.shape, like.stride(), like.storage_offset()))


def _like(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, a parameter where the other is one."""
    return nn.Parameter(tensor, like.requires_grad) if isinstance(like, nn.Parameter) else tensor


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage of a tensor, or of a sparse one's values."""
    return (sparse_parts(tensor)[1] if tensor.layout is torch.sparse_coo else tensor).untyped_storage()


class _Places:
    """The callable that tells ``torch.load`` where each storage goes: all to the host; those for the card are noted."""

    def __init__(self, map_location: Any):
        self._map_location = map_location
        self._for_the_card: dict[int, torch.UntypedStorage] = {}
        self._on_the_card: dict[int, torch.Tensor] = {}

    def __call__(self, storage: torch.UntypedStorage, saved_from: str) -> torch.UntypedStorage:
        if callable(self._map_location):
            return self._map_location(storage, saved_from)
        if self._is_for_the_card(saved_from):
            self._for_the_card[storage_id(storage)] = storage
        return storage

    def put(self, value: Any) -> Any:
        """A tensor or a module of what was loaded, where it belongs; tensors that share a storage go on doing so."""
        if isinstance(value, nn.Module):
            wanted = any(storage_id(tensor.untyped_storage()) in self._for_the_card for tensor in value.parameters())
            return value.to(CARD) if wanted else value
        if not isinstance(value, torch.Tensor) or storage_id(_storage(value)) not in self._for_the_card:
            return value
        return self._moved(value)

    def put_again(self, leaf: Any) -> Any:
        """A tensor that the loop itself has saved, where it belongs."""
        if isinstance(leaf, _ModuleOnDisk):
            again = copy.deepcopy(leaf.module)
            wanted = not callable(self._map_location) and self._is_for_the_card(leaf.saved_from)
            return again.to(CARD) if wanted else again
        if not isinstance(leaf, _OnDisk):
            return leaf
        if callable(self._map_location) or not self._is_for_the_card(leaf.saved_from):
            return leaf.tensor
        return self._moved(leaf.tensor)

    def _is_for_the_card(self, saved_from: str) -> bool:
        wanted = self._map_location
        if isinstance(wanted, dict):
            wanted = wanted.get(saved_from, saved_from)
        elif wanted is None:
            wanted = saved_from  # on the card's own machine, what was saved from CUDA comes back there
        wanted = torch.device(wanted)
        return wanted.type != "cpu" and wanted.type != "meta" and card_device(wanted) == CARD

    def _moved(self, value: torch.Tensor) -> torch.Tensor:
        if value.layout is torch.sparse_coo:
            return value.to(CARD)
        storage = value.untyped_storage()
        if storage_id(storage) not in self._on_the_card:
            whole = value.detach().as_strided((storage.nbytes() // value.element_size(),), (1,), 0)
            self._on_the_card[storage_id(storage)] = whole.to(CARD)
        return _as(self._on_the_card[storage_id(storage)], value)
