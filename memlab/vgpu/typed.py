"""``torch.cuda.FloatTensor`` and its kind, as was once written: what makes tensors on the card and tells them apart."""

from typing import Any

import torch

from memlab.vgpu.names import CARD

KINDS = [
    kind for name in dir(torch.cuda) if name.endswith("Tensor") and hasattr(kind := getattr(torch.cuda, name), "dtype")
]


class _Typed(type):
    dtype: torch.dtype

    def __call__(cls, *given: Any) -> torch.Tensor:
        sizes = given[0] if len(given) == 1 and isinstance(given[0], torch.Size) else given or (0,)
        if all(type(size) is int for size in sizes):
            return torch.empty(sizes, dtype=cls.dtype, device=CARD)
        (data,) = given
        return torch.as_tensor(data, dtype=cls.dtype, device=CARD)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.device == CARD and instance.dtype is cls.dtype


def typed(kind: Any) -> type:
    """Return the replacement for a class of ``torch.cuda``, such as ``FloatTensor``."""
    return _Typed(kind.__name__, (), {"dtype": kind.dtype})
