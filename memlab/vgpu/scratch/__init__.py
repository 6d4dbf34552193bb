"""Bytes that an operator needs on CUDA only while it runs: what no tensor shows.

Each rule tells what CUDA's kernels allocate beside the operator's results, and in which order. It names the recorded
trace (``tests/allocator/test_real_traces.py``) that shows it or the function of PyTorch that says so.
"""

from collections.abc import Sequence
from typing import Any

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import attention, cublas, elementwise, indexing, reductions, softmax
from memlab.vgpu.scratch.rule import Step

RULES = reductions.RULES | indexing.RULES | attention.RULES | elementwise.RULES | cublas.RULES | softmax.RULES


def scratch(card: Card, func: Any, args: tuple[Any, ...], out: Any) -> Sequence[Step]:
    """What the operator allocates, in order; () where that is its results alone."""
    rule = RULES.get(func.overloadpacket)
    return tuple(rule(card, args, out)) if rule else ()
