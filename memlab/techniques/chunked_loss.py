"""Cross-entropy without all the logits at once."""

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from memlab.errors import BadValue

IGNORED = -100  # what ``F.cross_entropy`` leaves out by default


def chunked_cross_entropy(
    features: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    chunks: int = 8,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The mean of ``F.cross_entropy(F.linear(features, weight), targets)``, a chunk of the rows at a time.

    The logits of a chunk are thrown away after its forward and made again in backward, so that at any moment only one
    chunk has any. That costs one more product of ``features`` and ``weight``.

    Args:
        features: ``(..., width)``, what the last layer is given.
        weight: ``(classes, width)``, of the last layer.
        targets: int64, the shape of ``features`` without its last dimension; those that are -100 do not count.
        chunks: into how many pieces the rows are cut.
        dtype: to cast the logits to before the loss: ``torch.float32`` for logits in 16 bits outside of autocast.

    Raises:
        BadValue: ``chunks`` is not a number from 1 on.
    """
    if not isinstance(chunks, int) or chunks < 1:
        raise BadValue(f"chunks={chunks!r} is not a number of pieces: give 1 (all at once) or more.")
    rows, targets = features.flatten(0, -2), targets.flatten()
    pieces = zip(rows.chunk(chunks), targets.chunk(chunks), strict=True)
    losses = (checkpoint(_chunk, piece, weight, goal, dtype, use_reentrant=False) for piece, goal in pieces)
    return sum(losses) / (targets != IGNORED).sum()


def _chunk(
    features: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, dtype: torch.dtype | None
) -> torch.Tensor:
    if dtype is None:
        return F.cross_entropy(F.linear(features, weight), targets, reduction="sum")
    return F.cross_entropy(F.linear(features, weight).to(dtype), targets, reduction="sum")
