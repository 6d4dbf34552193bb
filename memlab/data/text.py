"""Real data that is always there: the source code of Python's own standard library, as bytes."""

import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch

from memlab.errors import BadValue

HELD_OUT_EVERY = 10  # one file in ten is never trained on


@cache
def corpus(split: str = "train") -> np.ndarray:
    """The standard library's modules, one after the other: uint8 of shape ``(bytes,)``.

    Args:
        split: ``"train"``, or ``"held-out"`` for every tenth file, which ``"train"`` lacks.

    Raises:
        BadValue: for another split.
    """
    if split not in ("train", "held-out"):
        raise BadValue(f"split {split!r} is not known: give 'train' or 'held-out'.")
    held_out = split == "held-out"
    files = [path for i, path in enumerate(_sources()) if (i % HELD_OUT_EVERY == 0) is held_out]
    # An array of numpy's, not a tensor: it stays on the host and is no part of what training allocates.
    return np.frombuffer(b"\n".join(path.read_bytes() for path in files), dtype=np.uint8)


def batches(
    batch_size: int, context: int, *, split: str = "train", seed: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random windows of the corpus, without end.

    Yields:
        ``(tokens, targets)`` on the CPU, int64 of shape ``(batch_size, context)``; a target is the byte
        after its token. The same ``seed`` gives the same batches.
    """
    data = corpus(split)
    random = np.random.default_rng(seed)
    while True:
        starts = random.integers(len(data) - context, size=(batch_size, 1))
        windows = torch.from_numpy(data[starts + np.arange(context + 1)].astype(np.int64))
        yield windows[:, :-1], windows[:, 1:]


def _sources() -> list[Path]:
    # The modules alone: packages differ between systems (some leave out tests, or the IDE), and
    # site-packages, which is below this folder, is not the standard library.
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
