"""Pieces of the loops: networks, batches, and the loop that trains most of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from memlab.nets import GPT, Llama, ViT

HALF = torch.bfloat16
TOKENS = 4096
small_gpt = partial(GPT, depth=2, width=256, heads=4, context=256, vocabulary=TOKENS)
small_llama = partial(Llama, depth=2, width=256, heads=4, kv_heads=2, hidden=704, vocabulary=TOKENS)
small_vit = partial(ViT, depth=2, width=192, heads=3, image=64, patch=8, classes=10)


def text(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(batch, length, dtype=torch.long), torch.zeros(batch, length, dtype=torch.long)


def images(batch: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(batch, 3, size, size), torch.zeros(batch, dtype=torch.long)


def whole(model: nn.Module, **options: Any) -> Any:
    return torch.compile(model, **options)


def in_place(model: nn.Module, **options: Any) -> Any:
    model.compile(**options)
    return model


def layer_by_layer(model: nn.Module, **options: Any) -> Any:
    for block in model.blocks:
        block.compile(**options)
    return model


def trained(
    device: Any,
    *,
    make: Callable[[], nn.Module],
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    how: Callable[..., Any] = whole,
    autocast: torch.dtype | None = None,
    dtype: torch.dtype | None = None,
    step_is_compiled: bool = False,
    evaluates: bool = False,
    **options: Any,
) -> Iterator[torch.Tensor]:
    """A network that gives its loss, with AdamW; the batches in turn."""
    model = make().to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run = how(model, **options)
    step = torch.compile(optimizer.step) if step_is_compiled else optimizer.step
    for done in range(100):
        inputs, targets = (part.to(device) for part in batches[done % len(batches)])
        with torch.autocast("cuda", dtype=autocast) if autocast else nullcontext():
            loss = run(inputs, targets)
        loss.backward()
        step()
        optimizer.zero_grad()
        if evaluates:
            model.eval()
            with torch.no_grad():
                run(inputs, targets)
            model.train()
        yield loss


class Layers(nn.Module):
    """Residual layers with dropout: checkpointed, or with a graph break after each."""

    def __init__(self, dropout: float = 0.1, *, checkpointed: bool = False, breaks: bool = False, keeps: Any = None):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Dropout(dropout), nn.Linear(1024, 256)) for _ in range(4)
        )
        self.checkpointed, self.breaks = checkpointed, breaks
        # What a checkpoint keeps all the same, as a function of the operator.
        self.options = {} if keeps is None else {"context_fn": partial(create_selective_checkpoint_contexts, keeps)}

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False, **self.options) if self.checkpointed else block(x))
            if self.breaks:
                print(end="")  # noqa: T201  # Dynamo ends its graph here
        return F.mse_loss(x, y)


def rows(*counts: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.zeros(count, 256), torch.zeros(count, 256)) for count in counts]


on_text = partial(trained, batches=[text(4, 128)])
lengths = [text(4, length) for length in (128, 96, 160, 128)]
on_rows = partial(trained, batches=rows(2048))
