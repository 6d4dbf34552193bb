"""Bytes that fused attention allocates, in PyTorch's names of sizes: batch, heads, length, width of a head."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step

aten = torch.ops.aten
HOPPER, SM_100 = 90, 100
WIDE_SHARED_MEMORY = (80, 90, 100, 103)  # 160 KiB a multiprocessor and more; the other cards since sm_86 have 100


def _flash_forward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # mha_fwd: where few blocks of queries would leave the card idle the keys are split, and each part has its own
    # result in float32. The state of the random numbers comes after that, and with dropout a copy of it.
    query, key, dropout = given.query, given.key, given.dropout_p
    batch, heads, length, width = query.shape
    if length == 1 and heads > key.shape[1] and not dropout and width % 8 == 0:  # seqlenq_ngroups_swapped
        heads, length = key.shape[1], heads // key.shape[1]
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    blocks = batch * heads * -(-length // 64)
    parts = 1 if dropout else _splits(blocks, 2 * card.processors, -(-key.shape[2] // block))
    rows = 4 * parts * batch * heads * length
    state = [16] if dropout else []
    return Result(0), Result(1), *([rows, rows * _rounded(width)] if parts > 1 else []), RESULT, *state


def _splits(blocks: int, room: int, most: int) -> int:
    """``num_splits_heuristic`` of ``flash_api.cpp``: the fewest parts that keep the card nearly busy."""
    if blocks >= 0.8 * room:
        return 1
    efficiency = {}
    for parts in range(1, min(128, room, most) + 1):
        if parts == 1 or -(-most // parts) != -(-most // (parts - 1)):
            waves = blocks * parts / room
            efficiency[parts] = waves / -(-blocks * parts // room)
    enough = 0.85 * max(efficiency.values())
    return min(parts for parts in efficiency if efficiency[parts] >= enough)


def _rounded(width: int) -> int:
    step = 32 if width <= 128 else 64
    return -(-width // step) * step


def _flash_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _flash_attention_backward: gradient and result with heads innermost; mha_bwd: the sums of softmax's backward, and
    # a float32 gradient of the queries; with fewer key heads than query heads, gradients of keys and values for each
    # query head.
    query, key = given.query, given.key
    batch, heads, length, width = query.shape
    copies = [tensor.nbytes for tensor in (given.grad_out, given.out) if not tensor.transpose(1, 2).is_contiguous()]
    rows = 4 * batch * heads * -(-length // 128) * 128
    groups = [query.element_size() * batch * heads * key.shape[2] * width] * 2 if key.shape[1] != heads else []
    return *copies, RESULT, rows, rows * _rounded(width), *groups


def _efficient_forward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _efficient_attention_forward: the state of the random numbers comes first, where it is on the card. Where a row of
    # the result is too wide to be kept in half precision, it is summed in float32.
    wide = out[0].element_size() < 4 and given.value.shape[-1] > 128
    return Result(2), Result(3), RESULT, *([2 * out[0].nbytes] if wide else [])


def _efficient_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _efficient_attention_backward: the gradient with heads innermost; the product of result and gradient, and its row
    # sums, in float32 one after the other; in half precision the kernel makes the sums itself. Then its workspace. With
    # fewer key heads than query heads, which it takes since 2.15, gradients of keys and values for each query head.
    gradient, query, key = given.grad_out_, given.query, given.key
    batch, heads, length, _ = query.shape
    sums = 4 * batch * heads * length
    workspace = batch * heads * _efficient_workspace(card, query, key, given.value)
    copies = [] if gradient.transpose(1, 2).is_contiguous() else [gradient.nbytes]
    groups = [query.nbytes // length * key.shape[2]] * 2 if key.shape[1] != heads else []
    if query.element_size() < 4:
        return *copies, RESULT, *groups, sums, workspace
    product = gradient.nbytes
    again = [sums, -sums] if heads > 1 and length > 1 else []  # the sums, with heads before tokens
    return *copies, RESULT, *groups, product, sums, *again, -product, workspace


def _cudnn_forward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _cudnn_attention_forward: the state of the random numbers first
    return Result(6), Result(7), RESULT, 256 if card.sm == HOPPER else 0


def _cudnn_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    """``run_cudnn_SDP_bprop``: the gradients, then the workspace of cuDNN's plan.

    It is arithmetic of the shapes, fitted to what cuDNN 9.19, 9.20 and 9.26 answered for sm_80, sm_89, sm_90 and
    sm_100, and 9.20 for sm_120: ``tests/vgpu/test_attention_cudnn.py`` has the answers.
    """
    query, key = given.query, given.key
    batch, heads, length, width = query.shape
    rows = 4 * batch * heads
    # The row sums of softmax's backward and a float32 gradient of the queries; where the kernel is not that of Hopper
    # or of sm_100 (which is for more than 128 tokens) another of these, of whole blocks of 8 queries. With fewer key
    # heads, gradients of keys and values for each query head.
    grouped = key.shape[1] != heads
    size = rows * length * (1 + width)
    if card.sm == HOPPER:
        size += 256
    elif card.sm == SM_100 and min(length, key.shape[2]) > 128:
        size += 128 if grouped else 0
    else:
        size += rows * -(-length // 8) * 8 * width + 128
    if grouped:
        size += 2 * batch * heads * key.shape[2] * width * key.element_size()
    return RESULT, size


def _efficient_workspace(card: Card, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Bytes for each head: ``workspace_elements_gq``, ``_gk`` and ``_gv`` of ``kernel_backward.h``.

    Gradients of queries are summed in float32 tiles, each with two counters; where a tile of the result does not fit
    into registers, those of keys and values too.
    """
    length, width = query.shape[-2:]
    rows, columns, sums_keys = _efficient_tile(card, query.element_size() < 4, max(width, value.shape[-1]))
    tiles = -(-length // rows) * -(-width // columns) * (16 + 4 * rows * columns)
    if not sums_keys:
        return tiles
    keys = -(-key.shape[-2] // 64) * 64
    return tiles + sum(4 * keys * -(-tensor.shape[-1] // rows) * rows for tensor in (key, value))


def _efficient_tile(card: Card, half: bool, width: int) -> tuple[int, int, bool]:
    """The first kernel of ``cutlassB.h`` that fits: rows and columns of its tiles, whether it sums keys' gradients."""
    if width <= 64:
        return 64, 64, False
    wide = card.sm in WIDE_SHARED_MEMORY
    if not half:
        return (128 if wide else 64), 64, False
    if width > 128:
        return 128, 64, True
    if wide:
        return 128, 128, False
    return (64, 64, True) if card.sm > 80 and width > 96 else (128, 64, False)


RULES: dict[object, Rule] = {
    aten._scaled_dot_product_flash_attention: _flash_forward,
    aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    aten._scaled_dot_product_efficient_attention: _efficient_forward,
    aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    aten._scaled_dot_product_cudnn_attention: _cudnn_forward,
    aten._scaled_dot_product_cudnn_attention_backward: _cudnn_backward,
}
