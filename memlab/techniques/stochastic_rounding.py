"""Stochastic rounding to bfloat16, which keeps small updates on average, and an AdamW that rounds its weights so."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from memlab.errors import BadValue

LOW = 16  # bits of a float32 that bfloat16 has no room for


def round_stochastic(source: torch.Tensor, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """A bfloat16 of the same shape: each number goes to one of its two neighbours, more often to the nearer one.

    The chance of a neighbour is such that the mean of many roundings is the number itself (Gupta et al. 2015, "Deep
    Learning with Limited Numerical Precision"). What bfloat16 can hold stays as it is, also infinity and NaN. Beyond
    the largest bfloat16, the upper neighbour is infinity.

    Args:
        source: float32, of any shape.
        generator: of the device of ``source``; by default that device's own.

    Raises:
        BadValue: ``source`` is not float32.
    """
    if source.dtype != torch.float32:
        raise BadValue(f"{source.dtype} cannot be rounded to bfloat16 by its bits: give a float32 tensor.")
    # A number that is 70% of the way to its upper neighbour passes it with 70% of what may be added.
    bits = torch.randint(2**LOW, source.shape, dtype=torch.int32, device=source.device, generator=generator)
    bits.add_(source.detach().view(torch.int32)).bitwise_and_(-(2**LOW))
    # The sum of a NaN's bits may be a number.
    return bits.view(torch.float32).masked_fill_(source.isnan(), torch.nan).to(torch.bfloat16)


@torch.no_grad()
def copy_stochastic_(
    target: torch.Tensor, source: torch.Tensor, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """``target.copy_(source)``, but rounded as :func:`round_stochastic` does.

    Args:
        target: bfloat16, is changed.
        source: float32, of the same shape.
        generator: of the device of ``source``; by default that device's own.

    Returns:
        ``target``.

    Raises:
        BadValue: ``target`` is not bfloat16, ``source`` not float32, or their shapes differ.
    """
    if target.dtype != torch.bfloat16:
        raise BadValue(f"{target.dtype} needs no rounding from float32: give a bfloat16 target, or use copy_.")
    if target.shape != source.shape:
        raise BadValue(f"{tuple(source.shape)} does not fit {tuple(target.shape)}: give two tensors of one shape.")
    return target.copy_(round_stochastic(source, generator=generator))


class StochasticAdamW(Optimizer):
    """AdamW for weights in bfloat16: a step is computed in float32, and the new weights are rounded stochastically.

    Weights and both states stay in bfloat16, with the gradients 8 bytes a parameter; one parameter at a time is
    float32 (Zamirai et al. 2020, "Revisiting BFloat16 Training", rounds the weights; the running mean of squares needs
    it as much, because a decay of 0.999 is lost in bfloat16). Parameters in float32 are changed as by
    ``torch.optim.AdamW``. The chance is that of the device's default generator: ranks that hold copies of the same
    weights must seed it alike.

    Args:
        parameters: bfloat16 or float32, or groups of them.
        lr, betas, eps, weight_decay: as of ``torch.optim.AdamW``.

    Raises:
        BadValue: a parameter is of another type.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own; the types are those of the class."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            if parameter.dtype not in (torch.bfloat16, torch.float32):
                raise BadValue(f"{parameter.dtype} is not trained here: give parameters in bfloat16 or float32.")

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure: a step is one change
        """Change the parameters by their gradients; one without a gradient is left as it is."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _change(parameter, parameter.grad.float(), self.state[parameter], **group)


def _change(
    parameter: nn.Parameter,
    gradient: torch.Tensor,
    state: dict[str, Any],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    **_: object,
) -> None:
    if not state:
        state |= {"step": 0, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
    state["step"] += 1
    mean = _float32(state["exp_avg"]).lerp_(gradient, 1 - betas[0])
    square = _float32(state["exp_avg_sq"]).lerp_(gradient.square(), 1 - betas[1])
    del gradient
    _write(state["exp_avg"], mean)
    _write(state["exp_avg_sq"], square)
    mean /= 1 - betas[0] ** state["step"]  # both begin at zero, too low
    square /= 1 - betas[1] ** state["step"]
    weight = _float32(parameter).mul_(1 - lr * weight_decay).addcdiv_(mean, square.sqrt_().add_(eps), value=-lr)
    _write(parameter, weight)


def _float32(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, also of what is float32 already."""
    return tensor.to(torch.float32, copy=True)


def _write(target: torch.Tensor, source: torch.Tensor) -> None:
    if target.dtype == torch.bfloat16:
        copy_stochastic_(target, source)
    else:
        target.copy_(source)
