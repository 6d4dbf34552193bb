"""The training loops of the matrix. Every technique is plain PyTorch, switched on by a setting."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlab.nets import GPT, MLP, ResNet, ViT
from memlab.techniques.chunked_loss import chunked_cross_entropy
from memlab.techniques.step_in_backward import step_in_backward

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=1e-3),
    "SGD momentum": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
    "AdamW": torch.optim.AdamW,
    "AdamW for-loop": partial(torch.optim.AdamW, foreach=False),
    "AdamW fused": partial(torch.optim.AdamW, fused=True),
    "Adafactor": torch.optim.Adafactor,
}
WITH_A_LIBRARY = ("AdamW 8-bit",)  # from torchao, where it is installed
ATTENTION = {
    "math": SDPBackend.MATH,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}


def gpt(
    device: torch.device,
    *,
    depth: int = 12,
    width: int = 768,
    heads: int = 12,
    context: int = 1024,
    vocabulary: int = 50257,
    batch_size: int = 8,
    precision: str = "fp32",
    checkpoint_every: int = 0,
    optimizer: str = "AdamW",
    attention: str = "default",
    loss: str = "plain",
    offload: bool = False,
    accumulate: int = 1,
) -> Iterator[torch.Tensor]:
    """A GPT on random tokens. ``batch_size`` sequences a step, in ``accumulate`` parts."""
    shape = {"depth": depth, "width": width, "heads": heads, "context": context, "vocabulary": vocabulary}
    model = GPT(**shape, checkpoint_every=checkpoint_every)
    part = batch_size // accumulate

    def forward() -> torch.Tensor:
        tokens = torch.randint(vocabulary, (part, context)).to(device)
        if loss == "chunked":
            return chunked_loss(model, tokens, tokens)
        return model(tokens, tokens)

    yield from train(model, forward, device, precision, optimizer, attention, offload, accumulate)


def vit(
    device: torch.device,
    *,
    batch_size: int = 32,
    precision: str = "fp32",
    checkpoint_every: int = 0,
    optimizer: str = "AdamW",
) -> Iterator[torch.Tensor]:
    """ViT-B/16 on random images of 224 pixels."""
    model = ViT(checkpoint_every=checkpoint_every)
    yield from train(model, partial(_classify, model, device, batch_size, 224), device, precision, optimizer)


def resnet(
    device: torch.device,
    *,
    batch_size: int = 64,
    precision: str = "fp32",
    optimizer: str = "SGD momentum",
    inplace: bool = False,
    channels_last: bool = False,
    image: int = 64,
) -> Iterator[torch.Tensor]:
    """A ResNet-18 on random images."""
    model = ResNet(inplace=inplace)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    yield from train(model, partial(_classify, model, device, batch_size, image), device, precision, optimizer)


def mlp(
    device: torch.device,
    *,
    depth: int = 16,
    width: int = 2048,
    batch_size: int = 4096,
    precision: str = "fp32",
    checkpoint_every: int = 0,
    optimizer: str = "AdamW",
) -> Iterator[torch.Tensor]:
    """Linear and ReLU, ``depth`` times."""
    model = MLP(depth, width, checkpoint_every=checkpoint_every)

    def forward() -> torch.Tensor:
        return model(torch.randn(batch_size, width).to(device, _dtype_of(model))).square().mean()

    yield from train(model, forward, device, precision, optimizer)


def transformers_model(
    device: torch.device, *, name: str = "gpt2", batch_size: int = 4, tokens: int = 512, precision: str = "bf16"
) -> Iterator[torch.Tensor]:
    """A model of the transformers library, with random weights from its default configuration."""
    import transformers

    classes = {
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config()),
        "bert": (transformers.BertForMaskedLM, transformers.BertConfig()),
        "llama": (
            transformers.LlamaForCausalLM,
            transformers.LlamaConfig(
                hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16
            ),
        ),
    }
    class_, configuration = classes[name]
    model = class_(configuration).train()

    def forward() -> torch.Tensor:
        ids = torch.randint(1000, (batch_size, tokens)).to(device)
        return model(input_ids=ids, labels=ids).loss

    yield from train(model, forward, device, precision, "AdamW")


def timm_model(
    device: torch.device, *, name: str = "resnet50", batch_size: int = 32, precision: str = "bf16"
) -> Iterator[torch.Tensor]:
    """A model of the timm library, with random weights."""
    import timm

    model = timm.create_model(name, num_classes=10).train()

    def forward() -> torch.Tensor:
        images, labels = torch.randn(batch_size, 3, 224, 224).to(device), torch.zeros(batch_size, dtype=torch.int64)
        return F.cross_entropy(model(images), labels.to(device))

    yield from train(model, forward, device, precision, "SGD momentum")


def train(
    model: nn.Module,
    forward: Callable[[], torch.Tensor],
    device: torch.device,
    precision: str,
    optimizer: str,
    attention: str = "default",
    offload: bool = False,
    accumulate: int = 1,
) -> Iterator[torch.Tensor]:
    """Train a model that is still on the host; ``forward()`` gives the loss of one part of a batch."""
    model.to(device, torch.bfloat16 if precision == "pure bf16" else None)
    update = _step(model, optimizer)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    while True:
        for _ in range(accumulate):
            # Backward too, where a checkpoint runs the attention again.
            with _products(precision), _attention(attention):
                with _autocast(device, precision), _offloading(offload):
                    loss = forward() / accumulate
                scaler.scale(loss).backward()
        update(scaler)
        yield loss


def _classify(model: nn.Module, device: torch.device, batch_size: int, image: int) -> torch.Tensor:
    images = torch.randn(batch_size, 3, image, image).to(device, _dtype_of(model))
    return model(images, torch.zeros(batch_size, dtype=torch.int64).to(device))


def _dtype_of(model: nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


def _autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    dtype = AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype) if dtype else nullcontext()


@contextmanager
def _products(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _attention(name: str) -> AbstractContextManager[object]:
    return sdpa_kernel(ATTENTION[name]) if name in ATTENTION else nullcontext()


def _offloading(on: bool) -> AbstractContextManager[object]:
    return torch.autograd.graph.save_on_cpu() if on else nullcontext()


def chunked_loss(model: GPT, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A GPT's loss, its logits made in parts."""
    return chunked_cross_entropy(model.features(tokens), model.head.weight, targets)


def _step(model: nn.Module, name: str) -> Callable[[torch.amp.GradScaler], None]:
    if name == "AdamW in backward":
        step_in_backward(model.parameters(), OPTIMIZERS["AdamW for-loop"])
        return lambda scaler: None
    optimizer = (_with_8_bit_state if name in WITH_A_LIBRARY else OPTIMIZERS[name])(model.parameters())

    def update(scaler: torch.amp.GradScaler) -> None:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return update


def _with_8_bit_state(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    from torchao.optim import AdamW8bit

    return AdamW8bit(parameters)
