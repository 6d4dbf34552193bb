"""The training of the matrix's loops. Every technique is plain PyTorch, switched on by a setting."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

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
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "pure bf16")
AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}


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


def dtype_of(model: nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


def _autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    dtype = AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype) if dtype else nullcontext()


@contextmanager
def cudnn_flag(name: str, value: bool) -> Iterator[None]:
    """A context in which one flag of ``torch.backends.cudnn`` is set, and all others are as they were."""
    before = getattr(torch.backends.cudnn, name)
    setattr(torch.backends.cudnn, name, value)
    try:
        yield
    finally:
        setattr(torch.backends.cudnn, name, before)


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
