"""Small loops on cards that are nearly full: what just fits, what just does not, and what people do then."""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

from memlab.nets import GPT, MLP
from memlab.units import KIB, MIB
from tests.loops.case import Case
from tests.loops.matrix.training import train


def cases() -> Iterator[Case]:
    """Both sides of each wall."""
    for share in (0.97, 0.999, 1.0, 1.02):
        yield Case(one_tensor, {"share": share})
    for kib in (300, 1500, 6000, 9500, 11000, 70000):
        for left in (450, 520):
            yield Case(many_tensors, {"kib": kib, "left": left})
    for left in (64, 128, 160, 176, 192, 224, 288):
        yield Case(mlp_beside, {"left": left})
    for left in (96, 176, 336):
        yield Case(mlp_beside, {"left": left, "precision": "bf16"})
        yield Case(mlp_beside, {"left": left, "optimizer": "AdamW fused"})
    for precision in ("fp32", "bf16"):
        for left in (60, 90, 120, 150, 200):
            yield Case(gpt_beside, {"left": left, "precision": precision})
    for fraction in (0.002, 0.01, 0.5):
        yield Case(within_a_fraction, {"fraction": fraction})
    for left in (200, 1000):
        yield Case(growing, {"left": left})
        yield Case(halving, {"left": left})
        yield Case(halving, {"left": left, "emptied": True})
    for emptied in (False, True):
        for wanted in (90, 220, 270):
            yield Case(fragmented, {"wanted": wanted, "emptied": emptied})
    for left in (300, 600):
        yield Case(other_shapes, {"left": left})
        yield Case(other_shapes, {"left": left, "emptied": True})


def ballast(device: torch.device, left: int) -> list[torch.Tensor]:
    """Tensors that leave so many MiB of the card free, by twos: powers of two, which no setting rounds up."""
    free, _ = torch.cuda.mem_get_info(device)
    wanted, held = free // (2 * MIB) * 2 - left, []
    while wanted > 0:
        mib = min(1024, 1 << wanted.bit_length() - 1)
        held.append(torch.empty(mib * MIB, dtype=torch.uint8, device=device))
        wanted -= mib
    return held


def one_tensor(device: torch.device, *, share: float = 1.0) -> Iterator[None]:
    """One tensor of that share of what is free."""
    while True:
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.empty(int(share * free), dtype=torch.uint8, device=device)
        del held
        torch.cuda.empty_cache()
        yield None


def many_tensors(device: torch.device, *, kib: int = 300, left: int = 500) -> Iterator[None]:
    """Tensors of one size, 500 MiB in all, where ``left`` MiB are free."""
    held = ballast(device, left)
    while True:
        tensors = [torch.empty(kib * KIB, dtype=torch.uint8, device=device) for _ in range(500 * KIB // kib)]
        yield None
        del tensors
    del held


def mlp_beside(
    device: torch.device, *, left: int = 100, precision: str = "fp32", optimizer: str = "AdamW"
) -> Iterator[torch.Tensor]:
    """Linear layers that learn where ``left`` MiB are free."""
    held = ballast(device, left)
    model = MLP(4, 1024)

    def forward() -> torch.Tensor:
        return model(torch.randn(1500, 1024).to(device)).square().mean()

    yield from train(model, forward, device, precision, optimizer)
    del held


def gpt_beside(device: torch.device, *, left: int = 100, precision: str = "fp32") -> Iterator[torch.Tensor]:
    """A small GPT that learns where ``left`` MiB are free."""
    held = ballast(device, left)
    model = GPT(depth=2, width=256, heads=4, context=128, vocabulary=2000)

    def forward() -> torch.Tensor:
        tokens = torch.randint(2000, (8, 128)).to(device)
        return model(tokens, tokens)

    yield from train(model, forward, device, precision, "AdamW")
    del held


def within_a_fraction(device: torch.device, *, fraction: float = 0.01) -> Iterator[torch.Tensor]:
    """Linear layers that learn in a part of the card, with a batch that grows."""
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    try:
        yield from _growing(device, steps=range(1, 40))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def growing(device: torch.device, *, left: int = 200) -> Iterator[torch.Tensor]:
    """Linear layers whose batch grows with every step."""
    held = ballast(device, left)
    yield from _growing(device, steps=range(1, 40))
    del held


def halving(device: torch.device, *, left: int = 200, emptied: bool = False) -> Iterator[torch.Tensor]:
    """The batch is halved until it fits, as people and libraries do it; the cache ``emptied`` before."""
    held = ballast(device, left)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = 64 * KIB
    while True:
        try:
            loss = _learn(model, optimizer, batch, device)
        except torch.OutOfMemoryError:
            optimizer.zero_grad()
            batch //= 2
            if emptied:
                torch.cuda.empty_cache()
            continue
        yield loss
    del held


def fragmented(device: torch.device, *, wanted: int = 250, emptied: bool = False) -> Iterator[None]:
    """Every second tensor is freed, in segments of their own and in shared ones; then a large one is wanted, in MiB."""
    held = ballast(device, 650)
    while True:
        own = [torch.empty(50 * MIB, dtype=torch.uint8, device=device) for _ in range(6)]
        shared = [torch.empty(4 * MIB, dtype=torch.uint8, device=device) for _ in range(60)]
        del own[::2], shared[::2]
        if emptied:
            torch.cuda.empty_cache()
        large = torch.empty(wanted * MIB, dtype=torch.uint8, device=device)
        yield None
        del own, shared, large
    del held


def other_shapes(device: torch.device, *, left: int = 300, emptied: bool = False) -> Iterator[torch.Tensor]:
    """Another length of the sequences in every step; the cache ``emptied`` after each."""
    held = ballast(device, left)
    model = GPT(depth=2, width=256, heads=4, context=512, vocabulary=2000).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        for length in (100, 333, 200, 512, 450):
            tokens = torch.randint(2000, (8, length)).to(device)
            loss = model(tokens, tokens)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if emptied:
                torch.cuda.empty_cache()
            yield loss
    del held


def _growing(device: torch.device, steps: range) -> Iterator[torch.Tensor]:
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in steps:
        yield _learn(model, optimizer, 2048 * step**2, device)


def _learn(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int, device: torch.device) -> torch.Tensor:
    inputs = torch.zeros(batch, 512, device=device)
    loss = F.mse_loss(model(inputs), inputs)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
