"""Recurrent networks as ATen's ``RNN.cpp`` runs them on CUDA without cuDNN, with one kernel for a whole cell."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from memlab.vgpu.current_prediction import current
from memlab.vgpu.internals import run_composite

aten = torch.ops.aten
Weights = Sequence[Tensor | None]  # of input and state, their biases, and of LSTM's projection
State = Any  # a tensor, or LSTM's two
Cell = Callable[[Tensor, State, Weights], State]
NOT_CUDNNS = (
    "cuDNN runs a recurrent network whole, and says how much it keeps only with a card at hand: what is predicted is "
    "PyTorch's own loop over time, which runs with torch.backends.cudnn.enabled = False."
)


def lstm_cell(
    tensor: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> State:
    """``aten.lstm_cell``."""
    return _lstm_cell(tensor, tuple(hx), (w_ih, w_hh, b_ih, b_hh, None))


def gru_cell(
    tensor: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    """``aten.gru_cell``."""
    hidden: Tensor = _gru_cell(tensor, hx, (w_ih, w_hh, b_ih, b_hh))
    return hidden


def lstm(
    tensor: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """``aten.lstm.input``."""
    *settings, batch_first = rest
    result, hidden, cell = _lstm(_Steps(), _time_first(tensor, batch_first), hx, params, has_biases, *settings)
    return _time_first(result, batch_first), hidden, cell


def gru(tensor: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, *rest: Any) -> tuple[Tensor, Tensor]:
    """``aten.gru.input``."""
    *settings, batch_first = rest
    result, last = _gru(_Steps(), _time_first(tensor, batch_first), hx, params, has_biases, *settings)
    return _time_first(result, batch_first), last


def packed_lstm(data: Tensor, batch_sizes: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """``aten.lstm.data``."""
    return _lstm(_Packed(batch_sizes.tolist()), data, *rest)


def packed_gru(data: Tensor, batch_sizes: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """``aten.gru.data``."""
    return _gru(_Packed(batch_sizes.tolist()), data, *rest)


def whole(operator: Any) -> Callable[..., Any]:
    """An operator that is taken apart on CUDA as elsewhere, where cuDNN does not run it."""

    def run(*args: Any) -> Any:
        _say_what_is_not_known()
        return run_composite(operator, *args)

    return run


def _say_what_is_not_known() -> None:
    if torch.backends.cudnn.enabled:
        current().note(NOT_CUDNNS)


def _lstm_cell(tensor: Tensor, state: State, weights: Weights) -> State:
    hidden, cell = state
    gates = _gates(tensor, hidden, weights)
    hidden, cell, _ = aten._thnn_fused_lstm_cell(*gates, cell, *weights[2:4])
    return hidden if weights[4] is None else torch.matmul(hidden, weights[4].t()), cell


def _gru_cell(tensor: Tensor, state: State, weights: Weights) -> State:
    return aten._thnn_fused_gru_cell(*_gates(tensor, state, weights), state, *weights[2:4])[0]


def _gates(tensor: Tensor, hidden: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    into, around = weights[:2]
    assert into is not None
    assert around is not None
    return torch.matmul(tensor, into.t()), torch.matmul(hidden, around.t())


def _lstm(
    steps: "_Steps", tensor: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    states = list(zip(hx[0].unbind(0), hx[1].unbind(0), strict=True))
    weights = _grouped(params, has_biases, hx[0].shape[2] != hx[1].shape[2])
    result, last = _network(steps, _lstm_cell, tensor, states, weights, *rest)
    return result, torch.stack([hidden for hidden, _ in last], 0), torch.stack([cell for _, cell in last], 0)


def _gru(
    steps: "_Steps", tensor: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, *rest: Any
) -> tuple[Tensor, Tensor]:
    weights = _grouped(params, has_biases, False)
    result, last = _network(steps, _gru_cell, tensor, list(hx.unbind(0)), weights, *rest)
    return result, torch.stack(last, 0)


def _time_first(tensor: Tensor, batch_first: bool) -> Tensor:
    return tensor.transpose(0, 1) if batch_first else tensor


def _grouped(params: Sequence[Tensor], has_biases: bool, is_projected: bool) -> list[Weights]:
    """The weights of each layer and direction."""
    count = 2 + 2 * has_biases + is_projected
    groups = [list(params[start : start + count]) for start in range(0, len(params), count)]
    nothing: list[Tensor | None] = [None, None]
    biases = [group[2:4] if has_biases else nothing for group in groups]
    last = [group[-1] if is_projected else None for group in groups]
    return [[*group[:2], *two, one] for group, two, one in zip(groups, biases, last, strict=True)]


def _network(
    steps: "_Steps",
    cell: Cell,
    tensor: Tensor,
    states: list[State],
    weights: list[Weights],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, list[State]]:
    """``_rnn_impl``: all results of the last layer, and the last state of each layer and direction."""
    _say_what_is_not_known()
    directions = 2 if bidirectional else 1
    last: list[State] = []
    for first in range(0, num_layers * directions, directions):
        here = slice(first, first + directions)
        tensor = _layer(steps, cell, tensor, states[here], weights[here], last)
        if dropout and train and first + directions < num_layers * directions:
            tensor = torch.dropout(tensor, dropout, True)
    return tensor, last


def _layer(
    steps: "_Steps", cell: Cell, tensor: Tensor, states: list[State], weights: list[Weights], last: list[State]
) -> Tensor:
    """One layer, in one direction or both; its last states are added to ``last``."""
    given = steps.given(tensor)
    result, state = steps.forward(cell, given, states[0], weights[0])
    last.append(state)
    if len(states) == 1:
        return result
    reverse, state = steps.backward(cell, given, states[1], weights[1])
    last.append(state)
    return torch.cat([result, reverse], -1)


class _Steps:
    """``FullLayer``: as many sequences in each step."""

    def given(self, tensor: Tensor) -> Any:
        """Return the input in the form that both directions take: a tensor for each step."""
        return tensor.unbind(0)

    def forward(self, cell: Cell, given: Any, state: State, weights: Weights) -> tuple[Tensor, State]:
        """From the first step on: all results, and the last state."""
        results, state = _in_time(cell, given, state, weights)
        return torch.stack(results, 0), state

    def backward(self, cell: Cell, given: Any, state: State, weights: Weights) -> tuple[Tensor, State]:
        """From the last step on."""
        results, state = _in_time(cell, given[::-1], state, weights)
        return torch.stack(results[::-1], 0), state


def _in_time(cell: Cell, inputs: Sequence[Tensor], state: State, weights: Weights) -> tuple[list[Tensor], State]:
    results = []
    for tensor in inputs:
        state = cell(tensor, state, weights)
        results.append(_hidden(state))
    return results, state


class _Packed(_Steps):
    """``PackedLayer``, ``ReversedPackedLayer``: fewer and fewer sequences, the longest first."""

    def __init__(self, sizes: list[int]):
        self._sizes = sizes
        self._starts = list(accumulate(sizes, initial=0))[:-1]

    def given(self, tensor: Tensor) -> Any:
        return tensor

    def forward(self, cell: Cell, given: Any, state: State, weights: Weights) -> tuple[Tensor, State]:
        results, ended = [], []
        before = self._sizes[0]
        for start, size in zip(self._starts, self._sizes, strict=True):
            part = given.narrow(0, start, size)
            if size < before:
                ended.append(_part(state, size, before))
                state = _part(state, 0, size)
            state, before = cell(part, state, weights), size
            results.append(_hidden(state))
        return torch.cat(results, 0), _joined([state, *reversed(ended)])

    def backward(self, cell: Cell, given: Any, state: State, weights: Weights) -> tuple[Tensor, State]:
        results = []
        before = self._sizes[-1]
        now = _part(state, 0, before)
        for start, size in zip(reversed(self._starts), reversed(self._sizes), strict=True):
            if size > before:
                now = _joined([now, _part(state, before, size)])
            now, before = cell(given.narrow(0, start, size), now, weights), size
            results.append(_hidden(now))
        return torch.cat(results[::-1], 0), now


def _hidden(state: State) -> Tensor:
    hidden: Tensor = state[0] if isinstance(state, tuple) else state
    return hidden


def _part(state: State, start: int, end: int) -> State:
    return tuple(one[start:end] for one in state) if isinstance(state, tuple) else state[start:end]


def _joined(states: list[State]) -> State:
    if isinstance(states[0], tuple):
        return tuple(torch.cat(part, 0) for part in zip(*states, strict=True))
    return torch.cat(states, 0)


OUR_OWN: dict[Any, Callable[..., Any]] = {
    aten.lstm_cell.default: lstm_cell,
    aten.gru_cell.default: gru_cell,
    aten.lstm.input: lstm,
    aten.gru.input: gru,
    aten.lstm.data: packed_lstm,
    aten.gru.data: packed_gru,
    **{
        operator: whole(operator)
        for operator in (
            aten.rnn_tanh.input,
            aten.rnn_tanh.data,
            aten.rnn_relu.input,
            aten.rnn_relu.data,
        )
    },
}
