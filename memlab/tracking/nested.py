"""Finding the tensors in what people pass around: containers of tensors, and tensors made of tensors."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from memlab.tracking.internals import sparse_parts, unwrapped


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """The tensors in nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name, None))


def is_wrapper(kind: type) -> bool:
    """Return True if tensors of this type hold their numbers in other tensors: DTensor, jagged tensors, torchao's.

    Such a class declares it by PyTorch's protocol for subclasses, ``__tensor_flatten__``.
    """
    return hasattr(kind, "__tensor_flatten__")


def inner_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that have storages: the tensor itself, or those that a wrapper or a sparse tensor holds.

    What ``torch.func`` wraps (``grad``, ``vmap``) is taken out of it.
    """
    whole: Any = unwrapped(tensor)
    if is_wrapper(type(whole)):
        names, _ = whole.__tensor_flatten__()
        for inner in (getattr(whole, name) for name in names):
            if isinstance(inner, torch.Tensor):  # DTensor names its mesh, too
                yield from inner_tensors(inner)
    elif whole.layout is torch.sparse_coo:
        yield from sparse_parts(whole)
    elif whole.layout is torch.strided:
        yield whole
