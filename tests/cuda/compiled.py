"""The memory of compiled loops in PyTorch's CUDA build on the stand-in, in ``tests/vgpu/compiled/recorded.json``.

``python -m tests.cuda.compiled [CARD ...] [--write]`` compares predictions with that file, or adds to it what is not
there, in the environment of ``make test-cuda``.
"""

from typing import Any

import torch

from tests.cuda.recorded import Recorded
from tests.environments import ROOT
from tests.vgpu.compiled.loops import LOOPS

FILE = ROOT / "tests" / "vgpu" / "compiled" / "recorded.json"
CARDS = ("T4", "A100-40GB", "H100", "RTX 5090", "B200")
STEPS = 4


def measured(name: str) -> tuple[int, int]:
    """The most bytes allocated and reserved in a few steps on the card that is there."""
    loop = LOOPS[name]("cuda")
    for _ in range(STEPS):
        next(loop)
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def compared(name: str, card: str, bytes_taken: list[int]) -> tuple[Any, str]:
    """The prediction of a loop, beside what was measured."""
    from memlab import predict

    trace = predict(LOOPS[name], gpu=card, steps=STEPS)
    found = [trace.peak_allocated, trace.peak_reserved]
    return trace, "equal" if found == bytes_taken else f"{found[0] / bytes_taken[0] - 1:+.3%} {found} {bytes_taken}"


RECORDED = Recorded("tests.cuda.compiled", __doc__, FILE, CARDS, LOOPS, measured, compared)

if __name__ == "__main__":
    RECORDED.main()
