"""Operators that CUDA does not take apart the way other devices do: attention, softmax, linear.

PyTorch takes such an operator apart before any device sees it. CUDA has its own way for these, and memory differs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from memlab.vgpu import fourier, product_derivatives, recurrent, values
from memlab.vgpu.attention.composite import attention
from memlab.vgpu.internals import COMPOSITE_KEY, FakeTensor, run_composite
from memlab.vgpu.sparse import embeddings

aten = torch.ops.aten
# CUDA has a kernel for each of these, and other devices only take them apart (native_functions.yaml). A kernel of the
# device's own makes the dispatcher keep them whole; the dispatch mode comes first, so it is never reached.
WHOLE = ("silu_backward", "mish_backward", "_fused_rms_norm")


def kernels() -> list[Library]:
    """Register the operators; what is returned must be kept."""
    libraries = []
    for key in ("AutogradPrivateUse1", "PrivateUse1", "AutogradLazy", "Lazy"):
        library = Library("aten", "IMPL", key)
        for operator, kernel in OUR_OWN.items():
            library.impl(operator.name().removeprefix("aten::"), kernel, key)
        libraries.append(library)
    for operator, formula in product_derivatives.WITH_FORMULAS.items():
        libraries[0].impl(operator.name().removeprefix("aten::"), formula, "AutogradPrivateUse1", with_keyset=True)
    for name in WHOLE:
        for library, key in zip(libraries[1::2], ("PrivateUse1", "Lazy"), strict=True):
            library.impl(name, _never_reached, key)
    return libraries


def _never_reached(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a virtual GPU runs no kernel")


def _linear(tensor: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    # at::linear adds the bias in place where it cannot add it in the product, but not under a dispatch mode.
    if bias is None or tensor.dim() == 2 or tensor.is_contiguous():
        return run_composite(aten.linear.default, tensor, weight, bias)
    return torch.matmul(tensor, weight.t()).add_(bias)


def _softmax(tensor: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return _in_one_operator(aten._softmax.default, tensor, dim, dtype)


def _log_softmax(tensor: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return _in_one_operator(aten._log_softmax.default, tensor, dim, dtype)


def _in_one_operator(operator: Any, tensor: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    # at::softmax: a float16 tensor is widened inside the kernel, any other before it.
    if tensor.dtype is torch.float16 and dtype is torch.float32:
        return operator(tensor, dim, True)
    return operator(tensor if dtype is None else tensor.to(dtype), dim, False)


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    # at::ctc_loss reads the lengths, but not under a dispatch mode.
    lengths = input_lengths, target_lengths
    if not all(values.is_known(given) for given in lengths if isinstance(given, FakeTensor)):
        return run_composite(aten.ctc_loss.Tensor, log_probs, targets, *lengths, blank, reduction, zero_infinity)
    numbers = [given.tolist() for given in lengths]
    return aten.ctc_loss.IntList(log_probs, targets, *numbers, blank, reduction, zero_infinity)


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    # at::one_hot writes ones into zeros, but under a dispatch mode it compares.
    if num_classes < 0:
        return run_composite(aten.one_hot.default, tensor, num_classes)
    zeros = tensor.new_zeros((*tensor.shape, num_classes))
    return zeros.scatter_(-1, tensor.unsqueeze(-1), 1)


OUR_OWN: dict[Any, Callable[..., Any]] = {
    aten.ctc_loss.Tensor: _ctc_loss,
    aten.scaled_dot_product_attention.default: attention,
    aten.linear.default: _linear,
    aten.one_hot.default: _one_hot,
    aten.softmax.int: _softmax,
    aten.log_softmax.int: _log_softmax,
    **fourier.OUR_OWN,
    **recurrent.OUR_OWN,
    **embeddings.OUR_OWN,
}


def way_of(operator: Any) -> Callable[..., Any] | None:
    """Return the decomposition of an operator that CUDA has no kernel for; None for all others."""
    if operator in OUR_OWN:
        return OUR_OWN[operator]
    whole = operator.overloadpacket in _WHOLE
    return operator.decompose if not whole and operator.has_kernel_for_dispatch_key(COMPOSITE_KEY) else None


_WHOLE = {getattr(aten, name) for name in WHOLE}
