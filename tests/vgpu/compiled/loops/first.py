"""Loops on which the rules were made: GPTs, Llamas, a ViT, layers, a ResNet; and those in CUDA graphs."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch import config as functorch_config
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import CheckpointPolicy

from memlab.nets import ResNet
from tests.vgpu.compiled.loops.common import (
    HALF,
    Layers,
    images,
    in_place,
    layer_by_layer,
    lengths,
    on_rows,
    on_text,
    rows,
    small_gpt,
    small_llama,
    small_vit,
    text,
    trained,
)

GRAPHED = "reduce-overhead"


def own_forwards() -> nn.Module:
    """Layers of which one instance has a ``forward`` of its own, as libraries give it."""
    layers = Layers()
    first = next(layer for layer in layers.modules() if isinstance(layer, nn.Linear))
    first.forward = lambda x: F.linear(x, first.weight, first.bias)  # type: ignore[method-assign]
    return layers


def products_kept(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    is_product = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


def masked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention by its formula, in a spelling that the compiler does not know."""
    future = torch.ones(query.shape[-2], query.shape[-2], dtype=torch.bool, device=query.device).triu(1)
    scores = query @ key.mT / query.shape[-1] ** 0.5
    return scores.masked_fill(future, -torch.inf).softmax(-1) @ value


def added(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The same in one that it knows, so that it takes the fused operator in half precision."""
    square = (query.shape[-2], query.shape[-2])
    mask = torch.full(square, -torch.inf, device=query.device, dtype=query.dtype).triu(1)
    return (query @ key.mT / query.shape[-1] ** 0.5 + mask).softmax(-1) @ value


def attending(mix: Callable[..., torch.Tensor]) -> nn.Module:
    """A GPT with this attention."""
    model = small_gpt()
    for block in model.blocks:
        block.attention.mix = mix  # type: ignore[method-assign]
    return model


def loss_alone(device: Any, classes: int = 10_000, rows: int = 1024) -> Iterator[torch.Tensor]:
    """A compiled function of the loop's own, with a head of many classes."""

    @torch.compile
    def loss_of(x: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy((x @ weight.t()).float(), labels)

    weight = torch.randn(classes, 256, device=device, requires_grad=True)
    body = nn.Linear(256, 256).to(device)
    while True:
        loss = loss_of(body(torch.randn(rows, 256, device=device)), weight, torch.zeros(rows, dtype=int, device=device))
        loss.backward()
        body.zero_grad()
        weight.grad = None
        yield loss


def flexible(device: Any) -> Iterator[torch.Tensor]:
    """FlexAttention with a causal mask."""
    attend = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device=device)
    layer = nn.Linear(128, 384).to(device)
    while True:
        q, k, v = layer(torch.randn(2, 256, 128, device=device)).view(2, 256, 3, 2, 64).permute(2, 0, 3, 1, 4)
        loss = attend(q, k, v, block_mask=mask).square().mean()
        loss.backward()
        layer.zero_grad()
        yield loss


def adapted(device: Any) -> Iterator[torch.Tensor]:
    """A frozen weight with two thin ones beside it."""
    base, a, b = (nn.Linear(i, o, bias=False).to(device) for i, o in ((1024, 1024), (1024, 8), (8, 1024)))
    base.requires_grad_(False)

    @torch.compile
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + F.silu(base(x) + b(a(x)))
        return x.square().mean()

    while True:
        loss = run(torch.randn(512, 1024, device=device))
        loss.backward()
        for layer in (a, b):
            layer.zero_grad()
        yield loss


def counted(
    device: Any, *, loop: Callable[..., Iterator[torch.Tensor]], figures: list[list[int]]
) -> Iterator[torch.Tensor]:
    """A loop, with the bytes that its steps took: allocated after each and at most in it, and the same of reserved."""
    running = loop(device)
    while True:
        torch.cuda.reset_peak_memory_stats()
        loss = next(running)
        after, most = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        figures.append([after, most, torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()])
        yield loss
        del loss


def fixed(device: Any, *, sizes: Sequence[int] = (4,), evaluates: bool = False) -> Iterator[torch.Tensor]:
    """A GPT in CUDA graphs, on batches that are on the card from the beginning; in the end it evaluates after steps."""
    model = small_gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    run = torch.compile(model, mode=GRAPHED)
    batches = {size: [part.to(device) for part in text(size, 128)] for size in sizes}
    for done in range(100):
        loss = run(*batches[sizes[done % len(sizes)]])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if evaluates and done > 2:
            model.eval()
            with torch.no_grad():
                run(*batches[sizes[0]])
            model.train()
        yield loss


def budgeted(device: Any, *, part: float) -> Iterator[torch.Tensor]:
    """A GPT of which the compiler may keep a part of what it would."""
    with functorch_config.patch(activation_memory_budget=part):
        yield from on_text(device, make=partial(small_gpt, depth=4))


def scaled(device: Any) -> Iterator[torch.Tensor]:
    """A GPT in float16, with a scaler of the loss."""
    model = small_gpt().to(device)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler("cuda")
    run = torch.compile(model)
    while True:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = run(*(part.to(device) for part in text(4, 128)))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        yield loss


def accumulated(device: Any, mode: str | None = GRAPHED) -> Iterator[torch.Tensor]:
    """Gradients of two batches are added: in CUDA graphs an error, for the second one's writes over the first's."""
    model = Layers().to(device)
    run = torch.compile(model, mode=mode)
    while True:
        for batch in rows(512, 512):
            loss = run(*(part.to(device) for part in batch))
            loss.backward()
        model.zero_grad()
        yield loss


FIRST: dict[str, Callable[..., Iterator[torch.Tensor]]] = {
    "gpt": partial(on_text, make=small_gpt),
    "gpt autocast": partial(on_text, make=small_gpt, autocast=HALF),
    "gpt bfloat16": partial(on_text, make=small_gpt, dtype=HALF),
    "gpt 50257 tokens": partial(on_text, make=partial(small_gpt, vocabulary=50_257), autocast=HALF),
    "gpt in place": partial(on_text, make=small_gpt, how=in_place, autocast=HALF),
    "gpt by layer": partial(on_text, make=small_gpt, how=layer_by_layer, autocast=HALF),
    "gpt checkpointed": partial(on_text, make=partial(small_gpt, depth=4, checkpoint_every=1), autocast=HALF),
    "gpt and its step": partial(on_text, make=small_gpt, autocast=HALF, step_is_compiled=True),
    "gpt lengths": partial(trained, make=small_gpt, batches=lengths),
    "gpt dynamic": partial(trained, make=small_gpt, batches=lengths, dynamic=True),
    "gpt static": partial(trained, make=small_gpt, batches=lengths, dynamic=False),
    "gpt fullgraph": partial(on_text, make=small_gpt, fullgraph=True),
    "gpt eager backend": partial(on_text, make=small_gpt, backend="eager"),
    "gpt aot_eager backend": partial(on_text, make=small_gpt, backend="aot_eager"),
    "llama": partial(on_text, make=small_llama),
    "llama autocast": partial(on_text, make=small_llama, autocast=HALF),
    "llama by layer": partial(on_text, make=small_llama, how=layer_by_layer, dtype=HALF),
    "vit": partial(trained, make=small_vit, batches=[images(16, 64)], autocast=HALF),
    "layers": partial(on_rows, make=Layers),
    "layers evaluated": partial(on_rows, make=Layers, evaluates=True),
    "layers checkpointed": partial(on_rows, make=partial(Layers, checkpointed=True)),
    "layers with breaks": partial(on_rows, make=partial(Layers, breaks=True)),
    "layers of many sizes": partial(trained, make=Layers, batches=rows(2048, 1024, 1536, 512)),
    "optimizer step": partial(on_rows, make=partial(Layers, 0.0), how=lambda model: model, step_is_compiled=True),
    "loss alone": loss_alone,
    # Whose products a card times with padding and without, while it compiles.
    "loss of 50257 classes": partial(loss_alone, classes=50_257, rows=2048),
    "own forwards": partial(on_rows, make=own_forwards),
    "flex attention": flexible,
    "adapters": adapted,
    "gpt masked by hand": partial(on_text, make=partial(attending, masked), autocast=torch.float16),
    "gpt with an added mask": partial(on_text, make=partial(attending, added), autocast=torch.float16),
    "gpt scaled": scaled,
    "gpt with half the budget": partial(budgeted, part=0.5),
    "gpt without a budget": partial(budgeted, part=0.0),
    "layers accumulated": partial(accumulated, mode=None),
    "layers checkpointed but for products": partial(
        on_rows, make=partial(Layers, checkpointed=True, keeps=products_kept)
    ),
    "resnet": partial(trained, make=partial(ResNet, blocks=(1, 1), width=32), batches=[images(16, 64)]),
}

# In CUDA graphs: figures of each step, in graphs.json, which `python -m tests.cuda.graphs --write` writes.
GRAPHS: dict[str, Callable[..., Iterator[torch.Tensor]]] = {
    "fixed batch": fixed,
    "evaluated": partial(fixed, evaluates=True),
    "another size": partial(fixed, sizes=(4, 4, 4, 4, 6, 4, 4, 4)),
    "new batches": partial(on_text, make=small_gpt, autocast=HALF, mode=GRAPHED),
    "by layer": partial(on_text, make=small_gpt, how=layer_by_layer, autocast=HALF, mode=GRAPHED),
    "dropout": partial(on_rows, make=Layers, mode=GRAPHED),
    "two lengths": partial(trained, make=small_gpt, batches=lengths, mode=GRAPHED),
}
