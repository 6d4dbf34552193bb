"""The memory of loops in CUDA graphs, step by step, in PyTorch's CUDA build on the stand-in.

``python -m tests.cuda.graphs [CARD ...] [--write]`` compares predictions with ``tests/vgpu/compiled/graphs.json``, or
adds to it what is not there.
"""

from functools import partial
from typing import Any

from tests.cuda.recorded import Recorded
from tests.environments import ROOT
from tests.vgpu.compiled.loops import GRAPHS, counted

FILE = ROOT / "tests" / "vgpu" / "compiled" / "graphs.json"
CARDS = ("T4", "A100-40GB")
STEPS = 8


def measured(name: str) -> list[list[int]]:
    """The bytes of each step on the card that is there."""
    figures: list[list[int]] = []
    loop = counted("cuda", loop=GRAPHS[name], figures=figures)
    for _ in range(STEPS):
        next(loop)
    return figures


def predicted(name: str, card: str) -> tuple[Any, list[list[int]]]:
    """The same for a card that is not there, with the trace."""
    from memlab import predict

    figures: list[list[int]] = []
    trace = predict(partial(counted, loop=GRAPHS[name], figures=figures), gpu=card, steps=STEPS)
    return trace, figures


def compared(name: str, card: str, figures: list[list[int]]) -> tuple[Any, str]:
    """The prediction of a loop, beside what was measured."""
    trace, found = predicted(name, card)
    return trace, "equal" if found == figures else f"{found} {figures}"


RECORDED = Recorded("tests.cuda.graphs", __doc__, FILE, CARDS, GRAPHS, measured, compared)

if __name__ == "__main__":
    RECORDED.main()
