"""How large the notebooks' models are: three sizes, one place."""

import os
from dataclasses import dataclass

from memlab.errors import BadValue


@dataclass(frozen=True)
class Size:
    """The sizes that the notebooks share. Bytes and times follow from them, they are not chosen."""

    name: str
    depth: int
    width: int
    heads: int
    context: int
    batch_size: int
    steps: int
    mlp_batch_size: int
    mlp_width: int
    linear_layers: int


SIZES = {
    size.name: size
    for size in (
        Size("ci", 4, 64, 2, 64, 8, 12, 256, 64, 1000),
        Size("cpu", 8, 192, 6, 128, 16, 60, 2048, 128, 1000),
        Size("gpu", 16, 1024, 16, 1024, 16, 60, 65536, 1024, 1000),
    )
}


def size() -> Size:
    """The size named by ``MEMLAB_SIZE``, else ``gpu`` where CUDA is available, else ``cpu``.

    Raises:
        BadValue: ``MEMLAB_SIZE`` names none of the three.
    """
    name = os.environ.get("MEMLAB_SIZE") or _default()
    if name not in SIZES:
        raise BadValue(f"MEMLAB_SIZE={name!r} is not a size: set it to {', '.join(SIZES)}, or leave it unset.")
    return SIZES[name]


def _default() -> str:
    import torch

    return "gpu" if torch.cuda.is_available() else "cpu"
