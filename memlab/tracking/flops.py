"""Floating-point operations of a step, by ``torch.utils.flop_counter``'s formulas."""

from collections.abc import Callable
from typing import Any

import torch


class FlopCounter:
    """Adds up the floating-point operations of the operators that it is shown, a multiply-add as two."""

    def __init__(self) -> None:
        self.total = 0
        self._counts: dict[tuple[Any, ...], int] = {}

    def count(
        self, formula: Callable[..., int], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        """Add what one operator did, by its formula."""
        # The formulas cost more than a small product itself, and depend on nothing but this.
        key = (func, *(value.shape if isinstance(value, torch.Tensor) else str(value) for value in args))
        if key not in self._counts:
            self._counts[key] = operations(formula, args, kwargs, out)
        self.total += self._counts[key]


def of_convolution_backward(
    grad: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor, *args: Any, out_val: Any = None
) -> int:
    """Of a convolution's backward. PyTorch's own formula takes no notice of groups."""
    transposed, mask = args[4], args[7]
    positions = inputs if transposed else grad
    return 2 * sum(mask[:2]) * positions.numel() * weight[0].numel()


def operations(formula: Callable[..., int], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """The floating-point operations of one operator, by its formula."""
    try:
        return formula(*args, **kwargs, out_val=out)
    except Exception:  # others' code, for a count beside the point: what it cannot read counts nothing
        return 0
