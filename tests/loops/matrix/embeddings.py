"""Tables that are looked up: their gradients are sums over equal indices, which CUDA sorts first.

Not here: SparseAdam and Adagrad of sparse gradients, whose sizes depend on how many indices are equal.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.loops.case import Case
from tests.loops.matrix.training import train

OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "padding_idx": {"padding_idx": 0},
    "max_norm": {"max_norm": 1.0},
    "scale_grad_by_freq": {"scale_grad_by_freq": True},
}


def cases() -> Iterator[Case]:
    """Counts of tokens up to 3,072, which are not sorted, and above; sparse gradients; bags; other ways to look up."""
    for count in (100, 3072, 3073, 8192, 50000, 300000):
        yield Case(embedding, {"count": count})
    for rows in (50, 1_000_000):
        yield Case(embedding, {"count": 8192, "rows": rows, "width": 16})
    for options in ("padding_idx", "scale_grad_by_freq"):
        for count in (3000, 20000):
            yield Case(embedding, {"options": options, "count": count})
    yield Case(embedding, {"count": 8192, "dtype": "bfloat16"})
    yield Case(embedding, {"count": 8192, "index": "int32"})
    yield Case(embedding, {"count": 8192, "precision": "bf16"})
    yield Case(tied, {"count": 2048})
    yield Case(tied, {"count": 4096})
    for mode in ("sum", "mean", "max"):
        yield Case(bag, {"mode": mode})
    yield Case(bag, {"mode": "sum", "weighted": True})
    yield Case(bag, {"mode": "mean", "offsets": True})
    yield Case(embedding, {"options": "max_norm"})
    yield Case(sparse, {"count": 4096})
    for how in LOOKUPS:
        yield Case(lookup, {"how": how, "count": 2000})
        if how != "index_of_columns":  # 400 MB
            yield Case(lookup, {"how": how, "count": 20000})


def embedding(
    device: torch.device,
    *,
    count: int = 8192,
    rows: int = 10000,
    width: int = 64,
    options: str = "",
    index: str = "int64",
    dtype: str = "float32",
    precision: str = "fp32",
) -> Iterator[Tensor]:
    """``count`` tokens of a table of ``rows``."""
    model = nn.Sequential(nn.Embedding(rows, width, **OPTIONS[options]), nn.Linear(width, width))
    model.to(getattr(torch, dtype))

    def forward() -> Tensor:
        tokens = torch.randint(rows, (count,)).to(device, getattr(torch, index))
        return model(tokens).square().mean()

    yield from train(model, forward, device, precision, "SGD")


def tied(device: torch.device, *, count: int = 2048, rows: int = 4000, width: int = 128) -> Iterator[Tensor]:
    """The table is the last layer, too."""
    model = nn.Sequential(nn.Embedding(rows, width), nn.LayerNorm(width), nn.Linear(width, rows, bias=False))
    model[2].weight = model[0].weight

    def forward() -> Tensor:
        tokens = torch.randint(rows, (8, count // 8)).to(device)
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    yield from train(model, forward, device, "fp32", "AdamW")


def bag(
    device: torch.device, *, mode: str = "sum", weighted: bool = False, offsets: bool = False, count: int = 8192
) -> Iterator[Tensor]:
    """Bags of 8 tokens."""
    model = nn.EmbeddingBag(10000, 64, mode=mode, include_last_offset=offsets)

    def forward() -> Tensor:
        tokens = torch.randint(10000, (count,)).to(device)
        weights = torch.rand(count).to(device) if weighted else None
        starts = torch.arange(0, count + offsets, 8, device=device)
        return model(tokens, starts, weights).square().mean()

    yield from train(model, forward, device, "fp32", "SGD")


def sparse(device: torch.device, *, count: int = 4096) -> Iterator[Tensor]:
    """Gradients that name the rows which they are of."""
    model = nn.Embedding(100_000, 64, sparse=True)
    yield from train(
        model, lambda: model(torch.randint(100_000, (count,)).to(device)).square().mean(), device, "fp32", "SGD"
    )


def lookup(device: torch.device, *, how: str = "index", count: int = 2000) -> Iterator[Tensor]:
    """Rows of a table of 5,000 by other operators than an embedding."""
    table = nn.Linear(64, 5000, bias=False)

    def forward() -> Tensor:
        return LOOKUPS[how](table.weight, torch.randint(5000, (count,)).to(device)).square().mean()

    yield from train(table, forward, device, "fp32", "SGD")


LOOKUPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda table, rows: table[rows],
    "index_of_two": lambda table, rows: table[rows, rows % 64],
    "index_of_columns": lambda table, rows: table[:, rows % 64].sum(1),
    "index_select": lambda table, rows: table.index_select(0, rows),
    "gather": lambda table, rows: table.gather(0, rows[:, None].expand(-1, 64)),
    "take": lambda table, rows: table.take(rows),
    "take_along_dim": lambda table, rows: table.take_along_dim(rows[:, None], 0),
    "one_hot": lambda table, rows: F.one_hot(rows[:500], 5000).float() @ table,
    "index_add": lambda table, rows: torch.zeros_like(table).index_add(0, rows, table.repeat(4, 1)[: len(rows)]),
    "scatter_add": lambda table, rows: torch.zeros_like(table).scatter_add(
        0, rows[:2000, None].expand(-1, 64), table[:2000]
    ),
    "scatter_reduce": lambda table, rows: torch.zeros_like(table).scatter_reduce(
        0, rows[:2000, None].expand(-1, 64), table[:2000], "mean"
    ),
    "index_put": lambda table, rows: (table * 1).index_put((rows[:100],), torch.ones(64, device=table.device)),
    "index_copy": lambda table, rows: (table * 1).index_copy(0, rows[:100], torch.ones(100, 64, device=table.device)),
}
