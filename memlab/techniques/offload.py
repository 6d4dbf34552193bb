"""Keep in the host's memory what a step does not need now: activations until backward, the optimizer's state."""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import Optimizer

from memlab.errors import BadValue


class offload_activations(saved_tensors_hooks):  # a context manager, named as save_on_cpu is
    """``with`` this around forward, what backward needs waits in the host's memory, and comes back when it is needed.

    ``torch.autograd.graph.save_on_cpu`` moves everything. Here small tensors stay, each of which would cost a copy and
    free next to nothing; and weights, whose bytes stay on the device anyway. From a CUDA card the copies go to pinned
    memory. On the CPU nothing is moved.

    Args:
        threshold: bytes; a tensor with fewer stays where it is.

    Raises:
        BadValue: ``threshold`` is not a number of bytes.
        RuntimeError: in backward, when a tensor that stayed was changed in place after forward.
    """

    def __init__(self, *, threshold: int = 1024 * 1024):
        if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 0:
            raise BadValue(f"threshold={threshold!r} is not a number of bytes: give 0 (all tensors) or more.")
        self.threshold = threshold
        super().__init__(self._pack, _unpack)

    def _pack(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.device, int | None]:
        if tensor.nbytes < self.threshold or tensor.device.type == "cpu" or _is_weight(tensor):
            # Detached, or a result that is saved for its own backward would keep itself alive.
            return tensor.detach(), tensor.device, tensor._version
        return _to_host(tensor.detach()), tensor.device, None


def _unpack(packed: tuple[torch.Tensor, torch.device, int | None]) -> torch.Tensor:
    tensor, device, version = packed
    if version is not None and version != tensor._version:
        raise RuntimeError(
            f"A tensor of shape {tuple(tensor.shape)} that backward needs was changed in place after forward: "
            "change a copy of it, or change it after backward."
        )
    return tensor.to(device, non_blocking=True)


def _is_weight(tensor: torch.Tensor) -> bool:
    """A parameter or a view of one: ``nn.Linear`` saves its weight transposed."""
    return isinstance(tensor if tensor._base is None else tensor._base, nn.Parameter)


def _to_host(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A copy on the host, pinned where it comes from a CUDA card."""
    copy = torch.empty_like(tensor, device="cpu", dtype=dtype, pin_memory=tensor.device.type == "cuda")
    return copy.copy_(tensor)


class HostOptimizer:
    """An optimizer that works in the host's memory; the device keeps the weights and their gradients.

    The host has a copy of the parameters, and the optimizer's state. A step brings the gradients to the host, changes
    the copy there, and copies it back (Ren et al. 2021, "ZeRO-Offload"). Weights in half precision have a copy in
    float32. ``optimizer`` is the optimizer on the host, for what changes learning rates or saves state. On the CPU the
    copy comes on top, and nothing is saved.

    Args:
        parameters: those to train, where they are to stay; a parameter that needs no gradient is left out.
        make_optimizer: called with the copies, as in ``partial(torch.optim.AdamW, lr=1e-3)``.

    Raises:
        BadValue: no parameter needs a gradient.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], make_optimizer: Callable[[list[nn.Parameter]], Optimizer]):
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if not self.parameters:
            raise BadValue("There is nothing to train: give parameters of which one or more need a gradient.")
        self._copies = [nn.Parameter(_to_host(p.detach(), _master_type(p))) for p in self.parameters]
        self.optimizer = make_optimizer(self._copies)

    @property
    def param_groups(self) -> list[dict[str, list[nn.Parameter]]]:
        """The parameters on the device, whose gradients a ``torch.amp.GradScaler`` unscales before a step."""
        return [{"params": self.parameters}]

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by their gradients; one without a gradient is left as it is."""
        for parameter, copy in zip(self.parameters, self._copies, strict=True):
            copy.grad = None if parameter.grad is None else parameter.grad.to("cpu", copy.dtype)
        self.optimizer.step()
        for parameter, copy in zip(self.parameters, self._copies, strict=True):
            parameter.copy_(copy, non_blocking=True)
        self.optimizer.zero_grad()

    def zero_grad(self) -> None:
        """Free the gradients on the device; those on the host are gone already."""
        for parameter in self.parameters:
            parameter.grad = None


def _master_type(parameter: nn.Parameter) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)
