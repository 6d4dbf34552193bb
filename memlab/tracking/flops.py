"""Floating-point operations of a step, by ``torch.utils.flop_counter``'s formulas."""

import torch
from torch.utils.flop_counter import flop_registry

# The CPU's attention, which torch.utils.flop_counter does not know, does the arithmetic of a card's.
_aten = torch.ops.aten
_ON_CARDS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _aten._scaled_dot_product_flash_attention_backward,
}


class FlopCounter:
    """Adds up the floating-point operations of the operators that it is shown, a multiply-add as two."""

    def __init__(self):
        self.total = 0
        self._formulas: dict = {}  # operator -> its formula, or None
        self._counts: dict = {}

    def count(self, func, args, kwargs, out) -> None:
        """Add what one operator did."""
        formula = self._formulas.get(id(func), self)  # by id: operators live for ever, and hash slowly
        if formula is self:
            packet = func.overloadpacket
            formula = self._formulas[id(func)] = flop_registry.get(_ON_CARDS.get(packet, packet))
        if formula:
            # The formulas cost more than a small product itself, and depend on nothing but this.
            key = (func, *(value.shape if isinstance(value, torch.Tensor) else str(value) for value in args))
            if key not in self._counts:
                self._counts[key] = _of(formula, args, kwargs, out)
            self.total += self._counts[key]


def _of(formula, args, kwargs, out) -> int:
    try:
        return formula(*args, **kwargs, out_val=out)
    except Exception:  # others' code, for a count beside the point: an operator that it cannot read counts nothing
        return 0
