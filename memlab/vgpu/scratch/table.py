"""All rules, and what they say of an operator."""

from collections.abc import Sequence
from typing import Any

from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions import steps as convolutions
from memlab.vgpu.scratch import attention, cublas, elementwise, indexing, reductions, softmax
from memlab.vgpu.scratch.rule import Step

RULES = (
    reductions.RULES
    | indexing.RULES
    | attention.RULES
    | elementwise.RULES
    | cublas.RULES
    | softmax.RULES
    | convolutions.RULES
)


def scratch(card: Card, func: Any, args: tuple[Any, ...], out: Any) -> Sequence[Step]:
    """What the operator allocates, in order; () where that is its results alone."""
    rule = RULES.get(func.overloadpacket)
    return tuple(rule(card, args, out)) if rule else ()
