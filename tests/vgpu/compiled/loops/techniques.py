"""Ways to train with compiled code: several models, other losses, gradients by functions, steps of the loop's own."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

from tests.vgpu.compiled.loops.common import HALF, Layers, rows, small_gpt, small_llama, small_vit, text

Loop = Callable[[Any], Iterator[torch.Tensor]]


def preferred(device: Any) -> Iterator[torch.Tensor]:
    """DPO: a policy beside a frozen reference, on chosen and rejected answers in one batch."""
    policy = small_gpt().to(device)
    reference = deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)

    @torch.compile
    def chances(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        logits = model.head(model.features(tokens[:, :-1])).float()
        return logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)

    while True:
        tokens = text(4, 96)[0].to(device)
        with torch.autocast("cuda", dtype=HALF):
            with torch.no_grad():
                before = chances(reference, tokens)
            chosen, rejected = (chances(policy, tokens) - before).chunk(2)
        loss = -F.logsigmoid(0.1 * (chosen - rejected)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss


class LowRank(nn.Module):
    """A frozen linear layer and two thin ones."""

    def __init__(self, base: nn.Linear, rank: int = 8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.drop = nn.Dropout(0.05)
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * self.b(self.a(self.drop(x.to(self.a.weight.dtype)))).to(x.dtype)


def with_adapters(device: Any) -> Iterator[torch.Tensor]:
    """A frozen GPT in bfloat16 with adapters in float32, compiled block by block."""
    model = small_gpt().to(HALF).requires_grad_(False)
    for block in model.blocks:
        for part in (block.attention, block.mlp):
            for name, child in part.named_children():
                if isinstance(child, nn.Linear):
                    setattr(part, name, LowRank(child))
        block.compile()
    model.to(device)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    while True:
        loss = model(*(part.to(device) for part in text(4, 128)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def taught(device: Any) -> Iterator[torch.Tensor]:
    """A student, and a teacher that follows it as a moving average, both compiled, with an update that is compiled."""
    student = small_vit().to(device)
    teacher = deepcopy(student).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)

    @torch.compile
    def follow() -> None:
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.01)

    learn, compared = torch.compile(student), torch.compile(teacher)
    while True:
        images = torch.randn(16, 3, 64, 64, device=device)
        targets = torch.zeros(16, dtype=torch.long, device=device)
        with torch.inference_mode():
            aim = compared(images, targets)
        loss = learn(images, targets) + 0.1 * aim.clone()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        follow()
        yield loss


def adversaries(device: Any) -> Iterator[torch.Tensor]:
    """Two networks with an optimizer each, one of them with spectral normalization."""
    up = [nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1)]
    maker = nn.Sequential(nn.Linear(64, 64 * 64), nn.Unflatten(1, (64, 8, 8)), *up, nn.Tanh()).to(device)
    down = [spectral_norm(nn.Conv2d(3, 32, 4, 2, 1)), nn.LeakyReLU(0.2), spectral_norm(nn.Conv2d(32, 64, 4, 2, 1))]
    judge = nn.Sequential(*down, nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 64, 1)).to(device)
    makers, judges = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (maker, judge))
    make, judged = torch.compile(maker), torch.compile(judge)
    while True:
        real = torch.randn(32, 3, 32, 32, device=device)
        made = make(torch.randn(32, 64, device=device))
        judges.zero_grad()
        loss = F.relu(1 - judged(real)).mean() + F.relu(1 + judged(made.detach())).mean()
        loss.backward()
        judges.step()
        makers.zero_grad()
        loss = -judged(made).mean()
        loss.backward()
        makers.step()
        yield loss


class Towers(nn.Module):
    """Images and texts, each to a vector, compared all with all."""

    def __init__(self) -> None:
        super().__init__()
        see = [nn.Conv2d(3, 64, 8, 8), nn.Flatten(2), nn.Linear(64, 128), nn.GELU()]
        self.see, self.images = nn.Sequential(*see), nn.Linear(64 * 128, 128, bias=False)
        self.words, self.texts = nn.Embedding(1000, 128), nn.Linear(128, 128, bias=False)
        self.read = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        left = F.normalize(self.images(self.see(images).flatten(1)), dim=-1)
        right = F.normalize(self.texts(self.read(self.words(words)).mean(1)), dim=-1)
        logits = self.scale.exp() * left @ right.t()
        pairs = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.t(), pairs)) / 2


def contrasted(device: Any) -> Iterator[torch.Tensor]:
    """CLIP, in float16 with a scaler, and a step that the scaler calls with unscaled, clipped gradients."""
    model = Towers().to(device)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4), torch.amp.GradScaler("cuda")
    run = torch.compile(model)
    while True:
        images, words = torch.randn(64, 3, 64, 64, device=device), torch.zeros(64, 16, dtype=torch.long, device=device)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = run(images, words)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        yield loss


def whole_step(device: Any, *, make_optimizer: Callable[..., torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    """Clipping and the step in one compiled function, behind a compiled model."""
    model = Layers().to(device)
    optimizer = make_optimizer(model.parameters())
    run = torch.compile(model)

    @torch.compile
    def step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    while True:
        loss = run(*(part.to(device) for part in rows(2048)[0]))
        loss.backward()
        step()
        optimizer.zero_grad()
        yield loss


def in_backward(device: Any) -> Iterator[torch.Tensor]:
    """Each weight has an optimizer, whose step a hook takes as soon as its gradient is there."""
    model = small_llama().to(device)
    optimizers = {weight: torch.optim.AdamW([weight], lr=1e-4) for weight in model.parameters()}

    def take(weight: torch.Tensor) -> None:
        optimizers[weight].step()
        optimizers[weight].zero_grad()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(take)
    run = torch.compile(model)
    while True:
        with torch.autocast("cuda", dtype=HALF):
            loss = run(*(part.to(device) for part in text(4, 128)))
        loss.backward()
        yield loss


def by_function(device: Any) -> Iterator[torch.Tensor]:
    """Gradients of a model as a function of its weights, by ``torch.func``, and the update, in one whole graph."""
    model = Layers(0.0).to(device)
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def loss_of(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional_call(model, weights, (x, y))

    @partial(torch.compile, fullgraph=True)
    def step(weights: dict[str, torch.Tensor], *batch: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        slopes, loss = grad_and_value(loss_of)(weights, *batch)
        return {name: weights[name] - 0.1 * slope for name, slope in slopes.items()}, loss

    while True:
        weights, loss = step(weights, *(part.to(device) for part in rows(1024)[0]))
        yield loss


class Rounded(torch.autograd.Function):
    """Weights as whole numbers of eight bits, whose gradient goes straight through."""

    @staticmethod
    def forward(context: Any, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        steps = weight / scale
        context.save_for_backward(steps)
        return steps.round().clamp(-128, 127) * scale

    @staticmethod
    def backward(context: Any, slope: torch.Tensor) -> tuple[torch.Tensor, None]:
        (steps,) = context.saved_tensors
        return slope * (steps.abs() <= 128), None


class Quantized(nn.Linear):
    """A linear layer that is trained to be rounded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weight.detach().abs().amax(1, keepdim=True) / 127
        return F.linear(x, Rounded.apply(self.weight, scale), self.bias)


def rounded(device: Any) -> Iterator[torch.Tensor]:
    """Training for quantized weights, by an autograd function of the loop's own in the graph."""
    model = nn.Sequential(Quantized(256, 1024), nn.ReLU(inplace=True), Quantized(1024, 256)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = torch.compile(model)
    while True:
        loss = run(torch.randn(1024, 256, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def in_chunks(device: Any) -> Iterator[torch.Tensor]:
    """The loss of a large vocabulary in four checkpointed pieces, inside the compiled function."""
    body, head = nn.Linear(256, 256).to(device), nn.Linear(256, 8192, bias=False).to(device)

    def piece(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(head(x).float(), labels, reduction="sum")

    @torch.compile
    def loss_of(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        pieces = zip(body(x).chunk(4), labels.chunk(4), strict=True)
        return sum(checkpoint(piece, *part, use_reentrant=False) for part in pieces) / len(x)

    while True:
        with torch.autocast("cuda", dtype=HALF):
            loss = loss_of(torch.randn(2048, 256, device=device), torch.zeros(2048, dtype=torch.long, device=device))
        loss.backward()
        for layer in (body, head):
            layer.zero_grad()
        yield loss


TECHNIQUES: dict[str, Loop] = {
    "preferences": preferred,
    "gpt with adapters": with_adapters,
    "teacher": taught,
    "adversaries": adversaries,
    "contrast": contrasted,
    "clipping and the step": partial(whole_step, make_optimizer=partial(torch.optim.AdamW, lr=1e-4)),
    "fused step": partial(whole_step, make_optimizer=partial(torch.optim.AdamW, lr=1e-4, fused=True)),
    "step in backward": in_backward,
    "gradients by a function": by_function,
    "rounded weights": rounded,
    "loss in pieces": in_chunks,
}
