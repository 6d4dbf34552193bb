"""The loop that fine-tunes a Llama with all its weights, with LoRA, or with LoRA on weights in four bits."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional as F

from memlab.data import batches
from memlab.errors import BadValue
from memlab.nets import Llama
from memlab.protocol import is_whole
from memlab.techniques.chunked_loss import chunked_cross_entropy
from memlab.techniques.lora import LoRALinear
from memlab.techniques.nf4 import NF4Linear

BASES: dict[str, Callable[[nn.Linear], nn.Linear | NF4Linear]] = {"LoRA": lambda linear: linear, "QLoRA": NF4Linear}
METHODS = ("full", *BASES)
ADAPTED = {  # which Linear of a block have adapters, by the end of their names
    "all": ("query", "key", "value", "out", "gate", "up", "down"),
    "attention": ("query", "key", "value", "out"),
    "queries and values": ("query", "value"),  # peft's default for a Llama
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": partial(torch.optim.AdamW, fused=True),
    "AdamW, foreach": partial(torch.optim.AdamW, foreach=True),  # PyTorch's default, with temporaries
    "Adafactor": torch.optim.Adafactor,
    "SGD": torch.optim.SGD,
}
CHUNK = 256  # tokens whose logits are there at once
SMALL = {"depth": 2, "width": 64, "heads": 2, "kv_heads": 1, "hidden": 192}  # learns in seconds on a CPU


def train(
    device: torch.device,
    *,
    sizes: Mapping[str, Any] = SMALL,
    method: str = "QLoRA",
    context: int = 2048,
    batch_size: int = 1,
    checkpointing: bool = True,
    chunked_loss: bool = True,
    optimizer: str = "AdamW",
    adapters: str = "all",
    rank: int = 16,
) -> Iterator[torch.Tensor]:
    """Fine-tune a Llama with random weights, which take the same bytes. Yields the loss of each step.

    Weights, activations and, of the full method, gradients and optimizer state are in bfloat16; with adapters on a card
    without bfloat16 in float16, with a loss scale. Adapters are in float32, as peft makes them (TRL
    casts them to bfloat16). Embedding, norms and head stay in 16 bits.

    Args:
        device: where it trains. The model is made on the host, and goes there one Linear at a time.
        sizes: arguments of :class:`memlab.nets.Llama`, such as ``MODELS["Llama-3.1-8B"]``.
        method: one of ``METHODS``.
        context: tokens of a sequence.
        batch_size: sequences of a step.
        checkpointing: keep only the input of each block for backward.
        chunked_loss: the loss of 256 tokens at a time, so that the full logits never exist.
        optimizer: one of ``OPTIMIZERS``.
        adapters: one of ``ADAPTED``.
        rank: of the adapters.

    Raises:
        BadValue: an unknown method, optimizer or choice of adapters; a number below 1.
    """
    for name, number in {"context": context, "batch_size": batch_size, "rank": rank}.items():
        if not is_whole(number) or number < 1:
            raise BadValue(f"{name}={number!r} is no count: give a whole number from 1.")
    _check("method", method, METHODS)
    _check("optimizer", optimizer, OPTIMIZERS)
    _check("adapters", adapters, ADAPTED)
    needs_scale = method != "full" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False)
    dtype = torch.float16 if needs_scale else torch.bfloat16
    model = make_model(sizes, checkpointing=checkpointing, dtype=dtype, device=device)
    if method == "full":
        trained = list(model.to(device).parameters())
    else:
        trained = adapt(model, BASES[method], rank=rank, device=device, targets=ADAPTED[adapters])
    stepper = OPTIMIZERS[optimizer](trained, lr=1e-4)
    scaler = torch.amp.GradScaler(device.type, enabled=needs_scale)
    for tokens, targets in batches(batch_size, context):
        loss = loss_of(model, tokens.to(device), targets.to(device), chunked=chunked_loss)
        scaler.scale(loss).backward()
        scaler.step(stepper)
        scaler.update()
        stepper.zero_grad()
        yield loss


def make_model(
    sizes: Mapping[str, Any], *, checkpointing: bool, dtype: torch.dtype, device: torch.device | None = None
) -> Llama:
    """Make a Llama on the host, in 16 bits from the first: to make it in 32 would need as many bytes again.

    A model that goes to another ``device`` has one block's random numbers in all of them until then. So the host need
    not hold a Llama 8B, which some hosts cannot, nor draw eight billion numbers.
    """
    shared = device is not None and device.type != "cpu" and "depth" in sizes
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = Llama(**{**sizes, "depth": 1} if shared else sizes, checkpoint_every=int(checkpointing))
    finally:
        torch.set_default_dtype(before)
    if shared:
        model.blocks.extend(_twin(model.blocks[0]) for _ in range(sizes["depth"] - 1))
    return model


def _twin(block: nn.Module) -> nn.Module:
    """A block with parameters of its own, in the memory of the block's."""
    memo: dict[int, Any] = {id(weight): nn.Parameter(weight.detach()) for weight in block.parameters()}
    return copy.deepcopy(block, memo)


def adapt(
    model: Llama,
    base_of: Callable[[nn.Linear], nn.Linear | NF4Linear],
    *,
    rank: int,
    device: torch.device,
    targets: Collection[str] = ADAPTED["all"],
) -> list[nn.Parameter]:
    """Freeze a model and move it to the device, with adapters in float32 on some Linear of its blocks.

    Args:
        model: is changed.
        base_of: gives what stands in the place of a Linear of the blocks, such as ``NF4Linear``. It is called as soon
            as the Linear is on the device, so that never more than one is there as it was.
        rank: of the adapters.
        device: where the model goes.
        targets: how the names of those Linear end that have adapters.

    Returns:
        The weights to train: A and B of each adapter, in the model's order.
    """
    model.requires_grad_(False)
    names = [name for name, module in model.blocks.named_modules() if type(module) is nn.Linear]
    for name in names:  # no list of modules: it would hold them all on the device
        base: nn.Module = base_of(cast("nn.Linear", model.blocks.get_submodule(name).to(device)))
        if name.rpartition(".")[2] in targets:
            base = LoRALinear(cast("nn.Linear", base), rank=rank, dtype=torch.float32)
        model.blocks.set_submodule(name, base)
    model.to(device)
    return [weight for weight in model.parameters() if weight.requires_grad]


def loss_of(model: Llama, tokens: torch.Tensor, targets: torch.Tensor, *, chunked: bool) -> torch.Tensor:
    """Return the mean cross-entropy in float32, of 256 tokens at a time if ``chunked``.

    The features are let go of when it returns, before the optimizer's step needs the room.
    """
    features = model.features(tokens)
    if not chunked:
        return F.cross_entropy(model.head(features).flatten(0, 1).float(), targets.flatten())
    chunks = max(1, targets.numel() // CHUNK)
    return chunked_cross_entropy(features, model.head.weight, targets, chunks=chunks, dtype=torch.float32)


def _check(what: str, value: str, legal: Iterable[str]) -> None:
    known = list(legal)
    if value not in known:
        raise BadValue(f"{what}={value!r} is not known: give one of {', '.join(known)}.")
