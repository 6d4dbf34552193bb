"""Products of matrices: workspaces of cuBLAS, and copies of what lies in memory as it cannot take it.

cuBLAS has a workspace (:func:`cublas_workspace`), and cublasLt, which adds a bias in the product, has another
(``CublasHandlePool.cpp``):

- torch 2.11: each is allocated once for each thread, cuBLAS's first, and stays;
- from 2.13 on: cublasLt uses cuBLAS's (``TORCH_CUBLASLT_UNIFIED_WORKSPACE``);
- from 2.15 on: neither stays; each product allocates the one that it needs, and frees it.
"""

import os
import re
from collections.abc import Iterable
from typing import Any

import torch

from memlab.units import KIB, MIB
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.rule import Rule, Step, Workspace
from memlab.vgpu.versions import TORCH

aten = torch.ops.aten
LT_WORKSPACE = MIB  # parseCUDABlasLtWorkspaceSize
_BUFFERS = re.compile(":([0-9]+):([0-9]+)")  # of so many KiB, so many
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def cublas_workspace(card: Card) -> int:
    """Bytes of cuBLAS's workspace: what the environment says, as for reproducible training, or the card's.

    ``parseChosenWorkspaceSize``: on newer cards 32 MiB, else 2 buffers of 4096 KiB and 8 of 16 KiB. The traces
    ``xl_128_fp32`` and ``cold_200_amp`` show the one and the other; with 2.11 only sm_90 is newer.
    """
    chosen = _BUFFERS.findall(os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if not chosen:
        return 32 * MIB if card.sm == 90 or (card.sm > 90 and TORCH >= (2, 13)) else 2 * 4 * MIB + 8 * 16 * KIB
    return sum(KIB * int(size) * int(count) for size, count in chosen)


def cublas(card: Card) -> Iterable[Step]:
    """The workspace of a product by cuBLAS."""
    size = cublas_workspace(card)
    return (size,) if TORCH >= (2, 15) else (Workspace("cublas", size),)


def cublas_lt(card: Card) -> Iterable[Step]:
    """The workspace of a product by cublasLt."""
    if TORCH >= (2, 15):
        return (LT_WORKSPACE,)
    return (*cublas(card), Workspace("cublasLt", LT_WORKSPACE)) if TORCH < (2, 13) else cublas(card)


def _product(first: str, second: str) -> Rule:
    """A product of these arguments."""

    def rule(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
        return *_copies(getattr(given, first), getattr(given, second)), *cublas(card)

    return rule


def _bmm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # torch/_native/ops/bmm_outer_product: since 2.13 a kernel of Triton makes products of vectors
    return () if TORCH >= (2, 13) and given.self.shape[2] == 1 else _product("self", "mat2")(card, given, out)


def _addmm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    first, second = given.mat1, given.mat2
    return *_copies(first, second), *(cublas_lt(card) if _adds_a_bias(given.self, first, second) else cublas(card))


def _addmm_activation(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return *_copies(given.mat1, given.mat2), *cublas_lt(card)


def _adds_a_bias(bias: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return True if ``addmm`` goes to cublasLt: ``isInputCompliesAddmmCudaLt`` of ``Blas.cpp``."""
    return (
        bias.shape in (second.shape[1:], (1, second.shape[1]))
        and bias.is_contiguous()
        and min(second.shape) > 1
        and first.dtype in FLOATS
    )


def _copies(*matrices: torch.Tensor) -> list[int]:
    """Bytes of those that are copied, because neither their rows nor their columns lie one after the other.

    ``prepare_matrix_for_cublas`` and ``prepare_batch_matrix_for_cublas``.
    """
    return [matrix.numel() * matrix.element_size() for matrix in matrices if not _is_fit(matrix)]


def _is_fit(matrix: torch.Tensor) -> bool:
    rows, columns = matrix.shape[-2:]
    down, along = matrix.stride()[-2:]
    if along == 1 and down >= max(1, columns):
        return True
    return down == 1 and along >= max(1, rows)


def _workspace_alone(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # Solvers, too: apply_triangular_solve (BatchLinearAlgebraLib.cpp) works in the result's memory; others end so.
    return cublas(card)


def _scaled_mm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # with a scale a row by CUTLASS (f8f8bf16_rowwise), but for sm_90
    return () if given.scale_a.numel() > 1 and card.sm // 10 != 9 else cublas_lt(card)


def _grouped_mm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _grouped_mm_cuda: by CUTLASS in bfloat16 since sm_90, else a product a group
    return () if card.sm >= 90 and out.dtype is torch.bfloat16 else cublas(card)


def _int_mm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return cublas(card) if TORCH < (2, 13) else ()


RULES: dict[object, Rule] = {
    aten.linalg_solve_triangular: _workspace_alone,
    aten.triangular_solve: _workspace_alone,
    aten.linalg_lu_solve: _workspace_alone,
    aten.linalg_inv_ex: _workspace_alone,
    aten._linalg_solve_ex: _workspace_alone,
    aten.mm: _product("self", "mat2"),
    aten.bmm: _bmm,
    aten.addmm: _addmm,
    aten.addmm_: _addmm,
    aten.baddbmm: _product("batch1", "batch2"),
    aten.baddbmm_: _product("batch1", "batch2"),
    aten.addbmm: _product("batch1", "batch2"),
    aten.addbmm_: _product("batch1", "batch2"),
    aten._addmm_activation: _addmm_activation,
    aten._scaled_mm: _scaled_mm,
    aten._int_mm: _int_mm,
    aten._grouped_mm: _grouped_mm,
    **dict.fromkeys((aten.mv, aten.addmv, aten.addmv_, aten.dot, aten.vdot), _workspace_alone),
}
