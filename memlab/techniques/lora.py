"""Low-rank adapters: a Linear that is frozen, and beside it a product of two small matrices that is trained."""

import copy
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F

from memlab.errors import BadValue
from memlab.techniques.nf4 import NF4Linear


class LoRALinear(nn.Module):
    """A frozen Linear with a low-rank adapter: ``base(x) + alpha / rank * x A^T B^T`` (Hu et al. 2021, "LoRA").

    ``A``, of shape ``(rank, in_features)``, begins at random, and ``B``, ``(out_features, rank)``, at zero: so the
    output begins as that of ``base``.

    Args:
        base: a Linear, or one whose weight is packed. It is frozen, and kept, not copied.
        rank: from 1 to the smaller of the two sizes of ``base``.
        alpha: the larger, the more the adapter counts.
        dtype: of the adapter, by default that of the weight. Its products are made in the type of ``x``.

    Raises:
        BadValue: ``base`` is neither, or has no such rank.
    """

    def __init__(
        self, base: nn.Linear | NF4Linear, *, rank: int, alpha: float = 16.0, dtype: torch.dtype | None = None
    ):
        super().__init__()
        _check(base, rank)
        self.base = base.requires_grad_(False)
        weight = base.weight if isinstance(base, nn.Linear) else base.scales
        A = weight.new_empty(rank, base.in_features, dtype=dtype)
        self.A = nn.Parameter(A.normal_(std=base.in_features**-0.5))
        self.B = nn.Parameter(weight.new_zeros(base.out_features, rank, dtype=dtype))
        self.scale = alpha / rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(..., in_features)`` to ``(..., out_features)``."""
        A, B = self.A.to(x.dtype), self.B.to(x.dtype)
        result: torch.Tensor = self.base(x) + F.linear(F.linear(x, A) * self.scale, B)
        return result

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        """A plain Linear, frozen too, with the adapter added to its weight: the same output for one product alone.

        Raises:
            BadValue: the weight is packed.
        """
        if not isinstance(self.base, nn.Linear):
            raise BadValue("The weight of this layer is packed: unpack it into a Linear, and adapt that.")
        merged = copy.deepcopy(self.base)
        merged.weight.addmm_(self.B.to(merged.weight.dtype), self.A.to(merged.weight.dtype), alpha=self.scale)
        return merged


def add_lora(model: nn.Module, targets: Iterable[str], *, rank: int, alpha: float = 16.0) -> list[LoRALinear]:
    """Freeze a model, and put a :class:`LoRALinear` in the place of each Linear that a target names.

    What else is to be trained (a new head) is set free after that, with ``requires_grad_()``.

    Args:
        model: is changed.
        targets: how the names of those Linears end: ``["attention.qkv", "out"]``.
        rank, alpha: as of :class:`LoRALinear`.

    Returns:
        The adapted layers, in the model's order.

    Raises:
        BadValue: as of :class:`LoRALinear`; also for a target that no Linear has.
    """
    linears = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    chosen = set()
    for target in targets:
        found = {name for name in linears if f".{name}".endswith(f".{target}")}
        if not found:
            legal = ", ".join(dict.fromkeys(name.rpartition(".")[2] for name in linears)) or "none"
            raise BadValue(f"{target!r} ends the name of no Linear in this model: give some of {legal}.")
        chosen |= found
    linears = {name: module for name, module in linears.items() if name in chosen}
    for module in linears.values():
        _check(module, rank)  # all of them, before anything is changed
    model.requires_grad_(False)
    adapted = {name: LoRALinear(module, rank=rank, alpha=alpha) for name, module in linears.items()}
    for name, adapter in adapted.items():
        model.set_submodule(name, adapter)
    return list(adapted.values())


def _check(base: nn.Linear | NF4Linear, rank: int) -> None:
    if not isinstance(base, nn.Linear | NF4Linear):
        raise BadValue(f"{type(base).__name__} cannot be adapted: give an nn.Linear.")
    most = min(base.in_features, base.out_features)
    if not isinstance(rank, int) or not 1 <= rank <= most:
        raise BadValue(f"rank={rank!r} is not a rank of this layer: give a whole number from 1 to {most}.")
