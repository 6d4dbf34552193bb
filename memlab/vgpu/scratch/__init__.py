"""Bytes that an operator needs on CUDA only while it runs: what no tensor shows.

Each rule gives the sizes that CUDA's kernels allocate beside the operator's results and free at its end. It names the
recorded trace (``tests/allocator/test_real_traces.py``) that shows it or, until one does, the function of PyTorch that
says so. What cuDNN takes for a convolution is not known before it has measured its own kernels, and is left out.
"""

from collections.abc import Iterable
from typing import Any

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch import attention, elementwise, indexing, reductions

RULES = reductions.RULES | indexing.RULES | attention.RULES | elementwise.RULES


def scratch(card: Card, func: Any, args: tuple[Any, ...], out: Any) -> Iterable[int]:
    """The sizes, in bytes, in the order in which they are allocated."""
    rule = RULES.get(func.overloadpacket)
    return rule(card, args, out) if rule else ()
