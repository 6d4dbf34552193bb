"""Habits around a training step: evaluate, accumulate, keep, freeze, share, offload."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

from tests.loops.case import Case

Steps = Iterator[Tensor]
WIDTH, ROWS = 600, 1000


def cases() -> Iterator[Case]:
    """Each habit once."""
    for name in HABITS:
        yield Case(habit, {"name": name})


def habit(device: torch.device, *, name: str = "plain") -> Steps:
    """Three wide layers that classify points, trained by AdamW, with one habit."""
    yield from HABITS[name](device)


def make_model(device: torch.device, classes: int = 50) -> nn.Sequential:
    layers = [nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes)]
    return nn.Sequential(*layers).to(device)


def make_batch(device: torch.device, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 64).to(device), torch.randint(50, (rows,)).to(device)


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, rows: int = ROWS) -> Tensor:
    x, labels = make_batch(device, rows)
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def _plain(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        yield _train(model, optimizer, device)


def _changing_batches(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        for rows in (700, 1300, 333, 2048):
            _train(model, optimizer, device, rows)
        yield _train(model, optimizer, device)


def _accumulated(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        for _ in range(4):
            x, labels = make_batch(device, ROWS // 4)
            loss = F.cross_entropy(model(x), labels) / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        yield loss


def _evaluated(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = _train(model, optimizer, device)
        model.eval()
        with torch.no_grad():
            predictions = [model(make_batch(device, 3 * ROWS)[0]).argmax(1) for _ in range(3)]
            torch.cat(predictions).float().mean()
        model.train()
        yield loss


def _inferred(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = _train(model, optimizer, device)
        with torch.inference_mode():
            x, labels = make_batch(device, 2 * ROWS)
            logits = model(x)
            (
                F.cross_entropy(logits, labels),
                (logits.softmax(1).topk(5).indices == labels[:, None]).any(1).float().mean(),
            )
        yield loss


def _losses_kept(device: torch.device) -> Steps:
    model, kept = make_model(device), []
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x, labels = make_batch(device)
        loss = F.cross_entropy(model(x), labels)
        kept.append(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield sum(kept).detach() if len(kept) > 1 else loss  # type: ignore[union-attr]


def _graph_kept(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x, labels = make_batch(device)
        logits = model(x)
        loss = F.cross_entropy(logits, labels)
        loss.backward(retain_graph=True)
        (1e-3 * logits.square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def _adversaries(device: torch.device) -> Steps:
    generator, judge = make_model(device, 64), make_model(device, 1)
    optimizers = [torch.optim.Adam(model.parameters(), betas=(0.5, 0.999)) for model in (generator, judge)]
    while True:
        real, noise = make_batch(device)[0], torch.randn(ROWS, 64, device=device)
        made = generator(noise)
        scores = judge(real), judge(made.detach())
        loss = torch.zeros((), device=device)
        for score, truth in zip(scores, (1.0, 0.0), strict=True):
            loss = loss + F.binary_cross_entropy_with_logits(score, torch.full_like(score, truth))
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        F.softplus(-judge(made)).mean().backward()
        optimizers[0].step()
        yield loss


def _teacher(device: torch.device) -> Steps:
    model, teacher = make_model(device), make_model(device).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x, _ = make_batch(device)
        with torch.no_grad():
            wanted = F.log_softmax(teacher(x) / 2, 1)
        loss = F.kl_div(F.log_softmax(model(x) / 2, 1), wanted, reduction="batchmean", log_target=True)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def _frozen(device: torch.device) -> Steps:
    model = make_model(device)
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    optimizer = torch.optim.AdamW(model[4].parameters())
    while True:
        yield _train(model, optimizer, device)


def _unfrozen_later(device: torch.device) -> Steps:
    model = make_model(device)
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model[2:].parameters())
    yield _train(model, optimizer, device)
    model[0].requires_grad_(True)
    optimizer.add_param_group({"params": list(model[0].parameters())})
    while True:
        yield _train(model, optimizer, device)


def _checkpointed(device: torch.device, *, sequential: bool = False) -> Steps:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, WIDTH), nn.GELU(), nn.Linear(WIDTH, 64)) for _ in range(6)))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x, _ = make_batch(device)
        if sequential:
            x = checkpoint_sequential(model, 3, x, use_reentrant=False)
        else:
            for block in model:
                x = checkpoint(block, x, use_reentrant=False)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def _hooked(device: torch.device) -> Steps:
    model, seen = make_model(device), {}
    optimizer = torch.optim.AdamW(model.parameters())
    for index, layer in enumerate(model):
        layer.register_forward_hook(lambda layer, given, result, index=index: seen.update({index: result.detach()}))
    while True:
        loss = _train(model, optimizer, device)
        torch.stack([value.norm() for value in seen.values()])
        yield loss


def _loaded(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    points = TensorDataset(torch.randn(2500, 64), torch.randint(50, (2500,)))
    while True:
        for x, labels in DataLoader(points, batch_size=ROWS, shuffle=True, pin_memory=device.type == "cuda"):
            loss = F.cross_entropy(model(x.to(device, non_blocking=True)), labels.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        yield loss


def _offloaded(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        with torch.autograd.graph.save_on_cpu(pin_memory=device.type == "cuda"):
            loss = F.cross_entropy(model(make_batch(device)[0]), make_batch(device)[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def _cleared(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = _train(model, optimizer, device)
        if device.type == "cuda":
            torch.cuda.empty_cache()
        yield loss


def _saved(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = _train(model, optimizer, device)
        best = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(best)
        optimizer.load_state_dict(optimizer.state_dict())
        yield loss


def _scheduled(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    # Not at once: the optimizer asks whether the number is negative, and a card that computes nothing does not know.
    optimizer.param_groups[0]["lr"] = torch.tensor(1e-3, device=device)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    while True:
        yield _train(model, optimizer, device)
        schedule.step()


def _augmented(device: torch.device) -> Steps:
    model = make_model(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x, labels = make_batch(device)
        order = torch.randperm(ROWS, device=device)
        share = torch.rand((), device=device)
        logits = model(share * x + (1 - share) * x[order] + 0.1 * torch.randn_like(x))
        loss = share * F.cross_entropy(logits, labels) + (1 - share) * F.cross_entropy(logits, labels[order])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def _in_place(device: torch.device) -> Steps:
    model = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    while True:
        x = model(make_batch(device)[0].mul_(2).clamp_(-3, 3))
        loss = x.add_(1.0).sigmoid_().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


HABITS: dict[str, Callable[[torch.device], Steps]] = {
    "plain": _plain,
    "changing_batches": _changing_batches,
    "accumulated": _accumulated,
    "evaluated": _evaluated,
    "inferred": _inferred,
    "losses_kept": _losses_kept,
    "graph_kept": _graph_kept,
    "adversaries": _adversaries,
    "teacher": _teacher,
    "frozen": _frozen,
    "unfrozen_later": _unfrozen_later,
    "checkpointed": _checkpointed,
    "checkpointed_sequential": lambda device: _checkpointed(device, sequential=True),
    "hooked": _hooked,
    "loaded": _loaded,
    "offloaded": _offloaded,
    "cleared": _cleared,
    "saved": _saved,
    "scheduled": _scheduled,
    "augmented": _augmented,
    "in_place": _in_place,
}
