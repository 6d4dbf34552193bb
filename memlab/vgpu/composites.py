"""Operators that CUDA does not take apart the way other devices do: attention, softmax, linear.

PyTorch takes such an operator apart before any device sees it. CUDA has its own way for these, and memory differs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from memlab.vgpu.cards import Card
from memlab.vgpu.current import current
from memlab.vgpu.internals import COMPOSITE_KEY, FakeTensor, attention_order, run_composite

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
MATH, FLASH, EFFICIENT, CUDNN = range(4)  # the numbers of torch.nn.attention.SDPBackend
# CUDA has a kernel for each of these, and other devices only take them apart (native_functions.yaml). A kernel of the
# device's own makes the dispatcher keep them whole; the dispatch mode comes first, so it is never reached.
WHOLE = ("silu_backward", "mish_backward", "_fused_rms_norm")
DEFAULT_ORDER = [FLASH, EFFICIENT, MATH, CUDNN]


def kernels() -> list[Library]:
    """Register the operators; what is returned must be kept."""
    libraries = []
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        library = Library("aten", "IMPL", key)
        for operator, kernel in OUR_OWN.items():
            library.impl(operator.name().removeprefix("aten::"), kernel, key)
        libraries.append(library)
    for name in WHOLE:
        libraries[-1].impl(name, _never_reached, "PrivateUse1")
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


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # the names of torch.nn.functional.scaled_dot_product_attention
    """As ``at::scaled_dot_product_attention`` of ``native/transformers/attention.cpp``."""
    backend = choose_attention(current().card, query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    needs_backward = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool and backend != CUDNN:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -torch.inf)
    if backend == FLASH:
        head = query.shape[-1]
        scale = head**-0.5 if scale is None else scale  # of the head size before it is padded
        padded = (_pad_last(tensor, 8) for tensor in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, scale=scale)[0]
        return out if out.shape[-1] == head else out[..., :head]
    if backend == EFFICIENT:
        bias = attn_mask
        if bias is not None:
            length = bias.shape[-1]
            bias = _pad_last(bias, 16)[..., :length]
            bias = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, needs_backward, dropout_p, is_causal, scale=scale
        )[0]
    if backend == CUDNN:
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, needs_backward, dropout_p, is_causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _pad_last(tensor: Tensor, multiple: int) -> Tensor:
    missing = -tensor.shape[-1] % multiple
    return torch.nn.functional.pad(tensor, [0, missing]) if missing else tensor


def choose_attention(
    card: Card,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> int:
    """The backend that CUDA would choose on that card: a number of ``torch.nn.attention.SDPBackend``.

    The rules are those of ``native/transformers/cuda/sdp_utils.cpp``: of the backends that are allowed, in
    order of priority, the first that can. cuDNN comes first on sm_90 and sm_100.
    """
    order = attention_order()
    if order[:3] == DEFAULT_ORDER[:3] and card.sm in (90, 100, 103):
        order = [CUDNN, FLASH, EFFICIENT, MATH]
    shapes_fit = (
        query.dim() == key.dim() == value.dim() == 4
        and all(tensor.shape[0] == query.shape[0] for tensor in (key, value))
        and (enable_gqa or query.shape[1] == key.shape[1] == value.shape[1])
        and all(tensor.stride(-1) == 1 and 0 not in tensor.shape for tensor in (query, key, value))
    )
    if shapes_fit:
        for backend in order:
            if backend in _CAN and _CAN[backend](card, query, key, value, mask, dropout_p, is_causal):
                return backend
    return MATH


def _can_flash(
    card: Card, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> bool:
    head = query.shape[-1]
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and mask is None
        and card.sm >= 80
        and query.dtype in HALF
        and head == key.shape[-1] == value.shape[-1] <= 256
        and not (is_causal and query.shape[-2] != key.shape[-2])
        and not (card.sm in (86, 89, 120) and query.requires_grad and head > 192 and (head <= 224 or dropout_p))
    )


def _can_efficient(
    card: Card, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> bool:
    half = query.dtype in HALF
    if not query.shape[1] == key.shape[1] == value.shape[1]:
        return False  # it knows no groups of queries
    if query.dtype not in (torch.float16, torch.float32, *([torch.bfloat16] if card.sm >= 80 else [])):
        return False
    alignment = 4 if card.sm >= 80 else 1
    if card.sm >= 80 or (card.sm >= 70 and half):
        alignment = max(alignment, 8 if half else 4)
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and query.shape[-1] == key.shape[-1]
        and query.shape[-1] % alignment == 0
        and value.shape[-1] % alignment == 0
    )


def _can_cudnn(
    card: Card, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> bool:
    heads = (query.shape[-1], value.shape[-1])
    return (
        torch.backends.cuda.cudnn_sdp_enabled()
        and card.sm >= 80
        and query.dtype in HALF
        and all(head <= 128 and head % 8 == 0 for head in heads)
        and (dropout_p * 16).is_integer()
        and key.shape[-2] > 1
        and not (dropout_p and query.shape[-2] == 1)
        and not torch.are_deterministic_algorithms_enabled()
    )


def _can_math(*_: Any) -> bool:
    return torch.backends.cuda.math_sdp_enabled()


_CAN = {MATH: _can_math, FLASH: _can_flash, EFFICIENT: _can_efficient, CUDNN: _can_cudnn}


def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    # at::ctc_loss reads lengths that are on the host, but not under a dispatch mode.
    if isinstance(input_lengths, FakeTensor) or isinstance(target_lengths, FakeTensor):
        return run_composite(
            aten.ctc_loss.Tensor, log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity
        )
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return aten.ctc_loss.IntList(log_probs, targets, *lengths, blank, reduction, zero_infinity)


OUR_OWN: dict[Any, Callable[..., Any]] = {
    aten.ctc_loss.Tensor: _ctc_loss,
    aten.scaled_dot_product_attention.default: _attention,
    aten.linear.default: _linear,
    aten.softmax.int: _softmax,
    aten.log_softmax.int: _log_softmax,
}


def way_of(operator: Any) -> Callable[..., Any] | None:
    """How an operator that CUDA has no kernel for is taken apart there; None for all others."""
    if operator in OUR_OWN:
        return OUR_OWN[operator]
    whole = operator.overloadpacket in _WHOLE
    return operator.decompose if not whole and operator.has_kernel_for_dispatch_key(COMPOSITE_KEY) else None


_WHOLE = {getattr(aten, name) for name in WHOLE}
