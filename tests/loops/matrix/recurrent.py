"""Recurrent networks, without cuDNN: PyTorch's own loop over time, and cells that the reader's loop calls."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.loops.case import Case
from tests.loops.matrix.training import cudnn_flag, train

KINDS = ("LSTM", "GRU", "RNN")


def cases() -> Iterator[Case]:
    """Each kind of network, then what changes how one runs."""
    for kind in KINDS:
        for precision in ("fp32", "fp16"):
            yield Case(recurrent, {"kind": kind, "precision": precision})
        yield Case(recurrent, {"kind": kind, "precision": "fp32", "bidirectional": True})
        yield Case(recurrent, {"kind": kind, "precision": "fp32", "packed": True})
        yield Case(recurrent, {"kind": kind, "precision": "fp32", "packed": True, "bidirectional": True})
        yield Case(cells, {"kind": kind, "precision": "fp32"})
    yield Case(recurrent, {"kind": "LSTM", "precision": "fp32", "dropout": 0.1, "bias": False})
    yield Case(recurrent, {"kind": "LSTM", "precision": "fp32", "proj_size": 64})
    yield Case(recurrent, {"kind": "GRU", "precision": "pure bf16", "batch_first": False})


def recurrent(
    device: torch.device,
    *,
    kind: str = "LSTM",
    width: int = 256,
    num_layers: int = 2,
    dropout: float = 0.0,
    bidirectional: bool = False,
    bias: bool = True,
    proj_size: int = 0,
    batch_first: bool = True,
    packed: bool = False,
    length: int = 48,
    batch_size: int = 24,
    precision: str = "fp32",
    optimizer: str = "AdamW",
) -> Iterator[torch.Tensor]:
    """Noise of ``length`` steps, each result projected to ten numbers; packed, sequences get shorter and shorter."""
    sizes = {"bidirectional": bidirectional, "bias": bias, **({"proj_size": proj_size} if proj_size else {})}
    body = getattr(nn, kind)(64, width, num_layers, dropout=dropout, batch_first=batch_first, **sizes)
    model = nn.ModuleList([body, nn.Linear((proj_size or width) * (1 + bidirectional), 10)])
    lengths = torch.arange(batch_size, 0, -1) * length // batch_size

    def forward() -> torch.Tensor:
        x = torch.randn(*((batch_size, length) if batch_first else (length, batch_size)), 64)
        x = x.to(device, next(model.parameters()).dtype)
        given = pack_padded_sequence(x, lengths, batch_first=batch_first) if packed else x
        result, _ = body(given)
        if packed:
            result, _ = pad_packed_sequence(result, batch_first=batch_first)
        return model[1](result).square().mean()

    with cudnn_flag("enabled", False):
        yield from train(model, forward, device, precision, optimizer)


def cells(
    device: torch.device,
    *,
    kind: str = "LSTM",
    width: int = 256,
    length: int = 16,
    batch_size: int = 32,
    precision: str = "fp32",
    optimizer: str = "AdamW",
) -> Iterator[torch.Tensor]:
    """A cell that is called ``length`` times."""
    cell = getattr(nn, f"{kind}Cell")(64, width)
    model = nn.ModuleList([cell, nn.Linear(width, 10)])

    def forward() -> torch.Tensor:
        state, loss = None, torch.zeros((), device=device)
        for _ in range(length):
            state = cell(torch.randn(batch_size, 64).to(device), state)
            loss = loss + model[1](state[0] if kind == "LSTM" else state).square().mean()
        return loss

    yield from train(model, forward, device, precision, optimizer)
