"""The corpus of loops (``tests/loops``) on a card that is not there, kept in ``tests/recordings/``.

``python -m tests.standin CARD -m tests.cuda.recordings [NAME ...]``, or ``make recordings`` for all cards. Where parts
of names are given, only those cases are recorded, and nothing is kept.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import init
from transformers import masking_utils

from memlab.devices import Cuda
from memlab.files import write_atomically
from memlab.vgpu import CARDS
from tests.accuracy import RECORDINGS
from tests.loops.cases import find_cases
from tests.record.recorder import record
from tests.standin.build import cache

DRAWN = ("normal_", "uniform_", "bernoulli_")


class StandIn(Cuda):
    """The card of the stand-in: bytes only, for it computes nothing."""

    source = "stand-in, not a GPU"
    computes = False


@contextmanager
def without_drawing() -> Iterator[None]:
    """Weights on the host stay as they are: to draw them takes most of the time, and nobody computes with them."""

    def instead(draw: Any) -> Any:
        return lambda tensor, *args, **kwargs: tensor if tensor.is_cpu else draw(tensor, *args, **kwargs)

    for name in DRAWN:
        setattr(torch.Tensor, name, instead(getattr(torch.Tensor, name)))
    # It draws again and again, until all numbers are within bounds.
    truncated, init._no_grad_trunc_normal_ = init._no_grad_trunc_normal_, instead(init._no_grad_trunc_normal_)
    try:
        yield
    finally:
        init._no_grad_trunc_normal_ = truncated
        for name in DRAWN:
            delattr(torch.Tensor, name)  # PyTorch's own stands in the class above


@contextmanager
def with_answers() -> Iterator[None]:
    """Answer the loops' questions to the card as a prediction does: all is true, no gradient infinite, no group empty.

    The kernels that would know write nothing, so a loop would branch on what was in that memory before.
    """
    unscale, grouped = torch.amp.GradScaler._unscale_grads_, torch.nn.functional.grouped_mm

    def true(ask: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def asked(*args: Any, **kwargs: Any) -> torch.Tensor:
            result = ask(*args, **kwargs)
            return result.copy_(torch.tensor(True)) if result.is_cuda and not result.dim() else result

        return asked

    def unscaled(*args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        found = unscale(*args, **kwargs)
        return {device: infinite.copy_(torch.zeros(())) for device, infinite in found.items()}

    def grouped_mm(first: torch.Tensor, *args: Any, offs: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        offs.data.copy_(torch.arange(1, len(offs) + 1) * len(first) // len(offs))
        return grouped(first, *args, offs=offs, **kwargs)

    with (
        patch.object(torch.Tensor, "all", true(torch.Tensor.all)),
        patch.object(masking_utils, "fast_all", true(masking_utils.fast_all)),
        patch.object(torch.amp.GradScaler, "_unscale_grads_", unscaled),
        patch.object(torch.nn.functional, "grouped_mm", grouped_mm),
    ):
        yield


def main(names: list[str]) -> None:
    """Record, and say how many cases failed."""
    device = StandIn(torch.device("cuda"))
    card = next(card.name for card in CARDS.values() if card.driver_name == device.name)
    name = f"standin-{card}-torch{torch.__version__.partition('+')[0]}.json.gz"
    # Whole or not at all: what was begun waits in the cache, and the next call goes on with it.
    with tempfile.TemporaryDirectory() as aside, without_drawing(), with_answers():
        begun = (Path(aside) if names else cache()) / name
        recording = record(find_cases(names), device, begun, seconds=3600, say=lambda line: print(line, flush=True))
    if not names:
        RECORDINGS.mkdir(exist_ok=True)
        write_atomically(RECORDINGS / name, begun.read_bytes())
        begun.unlink()
    failed = sum("error" in case for case in recording["cases"].values())  # as on the card: T4 has no flash attention
    print(f"{len(recording['cases'])} cases on the stand-in's {device.name}, {failed} of them failed")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1:])
