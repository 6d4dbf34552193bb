"""A card's speed of multiplying numbers of one type."""

import torch

from memlab.vgpu.cards import Speed

HALF = (torch.float16, torch.bfloat16)


def of_products(speed: Speed, dtype: torch.dtype, tf32: bool) -> float:
    """Operations a second of matrix products and convolutions on this type."""
    if dtype is torch.float32:
        return speed.tf32 if tf32 else speed.fp32
    if dtype in HALF:
        return speed.fp16 if dtype is torch.float16 else speed.bf16
    return 2 * speed.fp16 if dtype.itemsize == 1 else speed.fp32


def of_attention(speed: Speed, dtype: torch.dtype) -> float:
    """The same of fused attention, whose float32 is three products of TF32.

    ``OpMultiplyAddFastF32`` in ``gemm_kernel_utils.h`` of PyTorch's ``mem_eff_attention``.
    """
    return max(speed.fp32, speed.tf32 / 3) if dtype is torch.float32 else of_products(speed, dtype, False)
