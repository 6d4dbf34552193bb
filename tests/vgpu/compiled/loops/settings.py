"""Settings of the compiler, graph breaks, checkpoints and sizes, in loops that are small otherwise."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo import config as dynamo_config
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from memlab.nets.llama import rotate
from tests.vgpu.compiled.loops.common import HALF, Layers, on_rows, on_text, rows, small_llama, trained

Loop = Callable[[Any], Iterator[torch.Tensor]]


class Interrupted(nn.Module):
    """Layers with something between them that may end a graph."""

    def __init__(self, between: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]):
        super().__init__()
        self.first, self.second = nn.Linear(256, 1024), nn.Linear(1024, 256)
        self.between = between
        self.register_buffer("temperature", torch.tensor(2.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.second(F.gelu(self.between(F.gelu(self.first(x)), self.temperature))), y)


@torch.compiler.disable
def standardized(x: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(0)) / (x.std(0) + 1e-5) * temperature


def by_a_number(x: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    return x / temperature.item()


class Checkpointed(nn.Module):
    """A compiled block is a checkpoint's inside."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


def wrapped(model: nn.Module, **options: Any) -> nn.Module:
    """Checkpoints around compiled blocks, in a model that runs as it is written."""
    for i, block in enumerate(model.blocks):
        block.compile(**options)
        model.blocks[i] = Checkpointed(block)
    return model


def wrapped_whole(model: nn.Module, **options: Any) -> Any:
    """Checkpointed blocks in a model that is compiled whole."""
    for i, block in enumerate(model.blocks):
        model.blocks[i] = Checkpointed(block)
    return torch.compile(model, **options)


class Twice(nn.Module):
    """Checkpointed layers that run twice in one graph (pytorch#193193)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers(checkpointed=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.layers(x, y) + self.layers(x.flip(0), y)


def patched(device: Any, *, change: Callable[[], AbstractContextManager[Any]], loop: Loop) -> Iterator[torch.Tensor]:
    """A loop under settings of the compiler."""
    with change():
        yield from loop(device)


class Documents(nn.Module):
    """FlexAttention with shared keys, a slope for each head, and documents that do not see one another."""

    def __init__(self, width: int = 128, heads: int = 4, kv_heads: int = 2):
        super().__init__()
        self.heads, self.kv_heads, size = heads, kv_heads, width // heads
        self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * kv_heads * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("slopes", torch.exp2(-torch.arange(1, heads + 1)))

    def forward(self, x: torch.Tensor, mask: BlockMask) -> torch.Tensor:
        slopes = self.slopes
        q = rotate(self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2), 1e4)
        k, v = self.kv(x).unflatten(-1, (2, self.kv_heads, -1)).permute(2, 0, 3, 1, 4)

        def slanted(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
            return score + slopes[head] * (key - query)

        mixed = flex_attention(q, rotate(k, 1e4), v, score_mod=slanted, block_mask=mask, enable_gqa=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def documents(device: Any) -> Iterator[torch.Tensor]:
    """Two layers of it in a whole graph, with a mask that is made anew for each batch."""
    model = nn.ModuleList(Documents() for _ in range(2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    @partial(torch.compile, fullgraph=True)
    def loss_of(x: torch.Tensor, mask: BlockMask) -> torch.Tensor:
        for layer in model:
            x = layer(x, mask)
        return x.square().mean()

    while True:
        document = torch.zeros(512, dtype=torch.long, device=device)
        mask = create_block_mask(
            lambda b, h, q, k, document=document: (q >= k) & (document[q] == document[k]),
            *(None, None, 512, 512),
            device=device,
        )
        loss = loss_of(torch.randn(2, 512, 128, device=device), mask)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


SETTINGS: dict[str, Loop] = {
    "layers with a disabled function": partial(on_rows, make=partial(Interrupted, standardized)),
    "layers with a number": partial(on_rows, make=partial(Interrupted, by_a_number)),
    "layers with a captured number": partial(
        patched,
        change=partial(dynamo_config.patch, capture_scalar_outputs=True),
        loop=partial(on_rows, make=partial(Interrupted, by_a_number)),
    ),
    "layers past the limit": partial(
        patched,
        change=partial(dynamo_config.patch, recompile_limit=2),
        loop=partial(trained, make=Layers, batches=rows(2048, 1024, 1536, 512), dynamic=False),
    ),
    "layers tuned": partial(on_rows, make=partial(Layers, 0.0), options={"max_autotune_pointwise": True}),
    "layers with a compiled backward": partial(
        patched,
        change=partial(dynamo_config.patch, compiled_autograd=True),
        loop=partial(on_rows, make=partial(Layers, 0.0)),
    ),
    "llama, checkpoints around blocks": partial(on_text, make=small_llama, how=wrapped, dtype=HALF),
    "llama, checkpoints in a whole": partial(on_text, make=small_llama, how=wrapped_whole, autocast=HALF),
    "layers checkpointed, twice": partial(on_rows, make=Twice),
    "documents": documents,
}
