"""Cells of recurrent networks, ``RNN.cu``; sequences of several lengths, ``PackedSequence.cpp``."""

from collections.abc import Iterable
from typing import Any

import torch

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.reductions import over, wide
from memlab.vgpu.scratch.rule import RESULT, Result, Rule, Step

aten = torch.ops.aten


def _lstm(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _thnn_fused_lstm_cell_cuda: what backward needs comes first
    return Result(2), Result(0), Result(1)


def _lstm_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _thnn_fused_lstm_cell_backward_impl_cuda: one sum over the batch for both biases
    bias: list[Step] = [Result(2), *_summed(card, out[0])] if out[2] is not None else []
    return Result(0), Result(1), *bias


def _gru(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    return Result(1), Result(0)


def _gru_backward(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    yield from map(Result, range(3))
    for place in (3, 4):
        if out[place] is not None:
            yield Result(place)
            yield from _summed(card, out[0])


def _packed(card: Card, given: Arguments, out: Any) -> Iterable[Step]:
    # _pack_padded_sequence: the steps that have as many sequences are copied in one piece, and joined
    padded, lengths = given.input.transpose(0, 1) if given.batch_first else given.input, given.lengths
    before = 0
    for ended, length in enumerate(reversed(lengths.tolist())):
        if length > before:
            part = padded[before:length, : len(lengths) - ended]
            yield 0 if part.is_contiguous() else part.numel() * part.element_size()
            before = length
    yield RESULT


def _summed(card: Card, gates: torch.Tensor) -> Iterable[int]:
    return over(card, gates, [0], wide(gates))


RULES: dict[object, Rule] = {
    aten._thnn_fused_lstm_cell: _lstm,
    aten._thnn_fused_lstm_cell_backward_impl: _lstm_backward,
    aten._thnn_fused_gru_cell: _gru,
    aten._thnn_fused_gru_cell_backward: _gru_backward,
    aten._pack_padded_sequence: _packed,
}
