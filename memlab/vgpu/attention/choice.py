"""The choice of the kernel that CUDA runs for scaled dot product attention."""

from typing import Any

import torch
from torch import Tensor

from memlab.vgpu.cards import Card
from memlab.vgpu.internals import attention_order
from memlab.vgpu.versions import TORCH

HALF = (torch.float16, torch.bfloat16)
MATH, FLASH, EFFICIENT, CUDNN = range(4)  # the numbers of torch.nn.attention.SDPBackend
DEFAULT_ORDER = [FLASH, EFFICIENT, MATH, CUDNN]


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
    order of priority, the first that can. cuDNN comes first on sm_90, sm_100 and sm_103.

    Raises:
        RuntimeError: what PyTorch raises where none of those that are allowed can.
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
    if not torch.backends.cuda.math_sdp_enabled():
        raise RuntimeError("No available kernel. Aborting execution.")
    return MATH


def why_unfused(card: Card, query: Tensor, key: Tensor, value: Tensor) -> str:
    """A sentence on what keeps attention from a fused kernel, if the loop could change that; or ``""``."""
    name, types, alignment = _text(query.dtype), _types(card), _alignment(card, query.dtype)
    sizes = [size for size in (query.shape[-1], value.shape[-1]) if size % alignment]
    if not torch.backends.cuda.mem_efficient_sdp_enabled():
        return ""
    if query.dim() != 4:
        reason = f"with {query.dim()} dimensions (fused kernels take 4: batch, heads, tokens, size of a head)"
    elif query.dtype not in types:
        reason = f"in {name} on the {card.name} (its fused kernels take {' and '.join(map(_text, types))})"
    elif sizes:
        reason = f"with heads of {sizes[0]} in {name} (fused kernels take multiples of {alignment} on the {card.name})"
    elif not _takes_groups() and query.shape[1] != key.shape[1]:
        reason = (
            f"with {query.shape[1]} heads of queries and {key.shape[1]} of keys (where FlashAttention does not run, "
            "fused kernels take as many of both before torch 2.15: repeat keys and values before the call)"
        )
    else:
        return ""
    return f"Attention runs unfused {reason}, so the table of scores is in memory"


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _can_flash(
    card: Card, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> bool:
    head = query.shape[-1]
    return (
        torch.backends.cuda.flash_sdp_enabled()
        and mask is None
        and card.has_flash_attention
        and query.dtype in HALF
        and head == key.shape[-1] == value.shape[-1] <= 256
        and not (is_causal and query.shape[-2] != key.shape[-2])
        and not (card.sm in (86, 89, 120) and query.requires_grad and head > 192 and (head <= 224 or dropout_p))
    )


def _can_efficient(
    card: Card, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> bool:
    if not _takes_groups() and not query.shape[1] == key.shape[1] == value.shape[1]:
        return False
    alignment = _alignment(card, query.dtype)
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and query.dtype in _types(card)
        and query.shape[-1] == key.shape[-1]
        and query.shape[-1] % alignment == 0
        and value.shape[-1] % alignment == 0
    )


def _takes_groups() -> bool:
    """Return True if the memory-efficient kernel knows groups of queries that share keys."""
    return TORCH >= (2, 15)


def _types(card: Card) -> tuple[torch.dtype, ...]:
    return (torch.float16, torch.float32, *([torch.bfloat16] if card.bf16 else []))


def _alignment(card: Card, dtype: torch.dtype) -> int:
    """Return the number that the size of an attention head must be a multiple of."""
    if card.sm >= 80 or (card.sm >= 70 and dtype in HALF):
        return 8 if dtype in HALF else 4
    return 1


def _can_cudnn(
    card: Card, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool
) -> bool:
    heads = (query.shape[-1], value.shape[-1])
    trained = any(tensor.requires_grad for tensor in (query, key, value))
    wide = card.sm >= 90 and (not trained or heads == (256, 256)) if TORCH >= (2, 15) else card.sm == 90
    return (
        torch.backends.cuda.cudnn_sdp_enabled()
        and card.sm >= 80
        and query.dtype in HALF
        and all(head <= (256 if wide else 128) and head % 8 == 0 for head in heads)
        and not (mask is not None and mask.requires_grad)
        and (TORCH < (2, 13) or (dropout_p * 16).is_integer())
        and key.shape[-2] > 1
        and not (dropout_p and query.shape[-2] == 1)
        and not torch.are_deterministic_algorithms_enabled()
    )


def _can_math(*_: Any) -> bool:
    return torch.backends.cuda.math_sdp_enabled()


_CAN = {MATH: _can_math, FLASH: _can_flash, EFFICIENT: _can_efficient, CUDNN: _can_cudnn}
