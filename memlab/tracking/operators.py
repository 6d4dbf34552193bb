"""The properties of each operator, looked up once in a process."""

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from memlab.tracking.collectives import COLLECTIVES
from memlab.tracking.flops import of_convolution_backward
from memlab.tracking.inplace import CANDIDATES
from memlab.tracking.internals import custom_definition, is_composite, is_higher_order, is_view

# Those that torch.utils.flop_counter does not know, with others of the same arithmetic: in place, the CPU's attention.
_aten = torch.ops.aten
_ALIKE = {
    _aten.addmm_: _aten.addmm,
    _aten.baddbmm_: _aten.baddbmm,
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _aten._scaled_dot_product_flash_attention_backward,
}


_OUR_OWN = {_aten.convolution_backward: of_convolution_backward}


class Operator:
    """One operator.

    Attributes:
        name: such as ``"aten.mm"``.
        collective: what it sends to other ranks, or None.
        definition: see :func:`memlab.tracking.internals.custom_definition`.
        formula: of its floating-point operations, or None.
        is_higher_order: it takes operators, see :func:`memlab.tracking.internals.higher_order_kernel`.
        is_composite: it is made of others, and does nothing itself.
        is_mark: it begins or ends a part of a profile, and does nothing itself.
        is_view: its result is a view of an argument, so it allocates nothing.
        may_be_in_place: see :mod:`memlab.tracking.inplace`.
    """

    __slots__ = (
        "collective",
        "definition",
        "formula",
        "is_composite",
        "is_higher_order",
        "is_mark",
        "is_view",
        "may_be_in_place",
        "name",
    )

    def __init__(self, func: Any):
        packet = getattr(func, "overloadpacket", func)
        self.name = str(packet)
        self.formula = _OUR_OWN.get(packet) or flop_registry.get(_ALIKE.get(packet, packet))
        self.collective = COLLECTIVES.get(packet)
        self.definition = custom_definition(func)
        self.is_higher_order = is_higher_order(func)
        self.is_composite = is_composite(func)
        self.is_mark = self.name.startswith("profiler.")
        self.is_view = is_view(func)
        self.may_be_in_place = func in CANDIDATES


_known: dict[int, Operator] = {}  # by id: operators live for ever, and hash slowly


def operator(func: Any) -> Operator:
    """Return the properties of an operator."""
    known = _known.get(id(func))
    if known is None:
        known = _known[id(func)] = Operator(func)
    return known
