"""Scaled dot product attention as CUDA takes it apart."""

import torch
from torch import Tensor

from memlab.vgpu.attention.choice import CUDNN, EFFICIENT, FLASH, HALF, choose_attention, why_unfused
from memlab.vgpu.current_prediction import current

aten = torch.ops.aten
LARGE = 0.05  # of what is allocated: tables of scores that are worth a sentence


def attention(
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
    attn_mask = _as_numbers(attn_mask, query.dtype)
    if backend == FLASH:
        head = query.shape[-1]
        scale = head**-0.5 if scale is None else scale  # of the head size before it is padded
        padded = (_pad_last(tensor, 8) for tensor in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, scale=scale)[0]
        return out if out.shape[-1] == head else out[..., :head]
    if backend == EFFICIENT:
        bias = attn_mask if attn_mask is None else _aligned(attn_mask).expand(*query.shape[:3], key.shape[2])
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, needs_backward, dropout_p, is_causal, scale=scale
        )[0]
    if backend == CUDNN:
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, needs_backward, dropout_p, is_causal, scale=scale
        )[0]
    why = why_unfused(current().card, query, key, value)
    return _math(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, why)


def _note_table(table: Tensor, why: str) -> None:
    """Have the trace say why there are tables of scores, if those of all layers are large beside what is allocated."""
    prediction = current()
    if prediction.score_tables.add(table) > LARGE * prediction.memory.blocks.allocated:
        prediction.note(why)


def _math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    why: str,
) -> Tensor:
    """As ``_scaled_dot_product_attention_math``, which adds the mask in place, but not under a dispatch mode."""
    dtype = query.dtype
    if dtype in HALF and not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed():
        query, key, value = query.float(), key.float(), value.float()
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    root = abs(scale) ** 0.5
    scaled = query * (-root if scale < 0 else root)
    if is_causal:
        shape = (query.shape[-2], key.shape[-2])
        mask = _as_numbers(torch.ones(shape, dtype=torch.bool, device=query.device).tril(), query.dtype)
    keys, values = key, value  # as all these names, they live until the end there
    if enable_gqa:
        keys, values = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
    weights = torch.matmul(scaled, keys.transpose(-2, -1) * root)
    if mask is not None:
        weights.add_(mask)
    weights = aten._safe_softmax(weights, -1)
    if why:
        _note_table(weights, why)
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    also_returned = weights.to(dtype)  # noqa: F841  it lives until the end
    return torch.matmul(weights, values).to(dtype)


def _as_numbers(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """``convert_boolean_attn_mask`` of ``attention.cpp``: 0 where it is true, else minus infinity."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-torch.inf, dtype=dtype, device=mask.device))


def _aligned(mask: Tensor) -> Tensor:
    """``preprocess_mask``: rows that do not begin at multiples of eight numbers get more room."""
    if mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    length = mask.shape[-1]
    return torch.nn.functional.pad(mask, [0, 8 - length % 8])[..., :length]


def _pad_last(tensor: Tensor, multiple: int) -> Tensor:
    missing = -tensor.shape[-1] % multiple
    return torch.nn.functional.pad(tensor, [0, missing]) if missing else tensor
