"""Code that people write around the training: classes, closures, prints, saving, stopping, checking."""

import functools
import math
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from tests.loops.ordinary.catalogue import FOREACH, HOST, ordinary, with_outside
from tests.loops.ordinary.small import mlp, rows, step


@ordinary(warns="Converting a tensor with requires_grad")
def progress_in_words(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lines = []
    for epoch in range(3):
        loss = step(model, optimizer, device)
        lines.append(f"epoch {epoch}: loss {loss.item():.3f}, {loss:.3f}, {loss}, {float(loss):>8.2e}")
        lines.append("%.2f %s %r" % (loss, loss.tolist(), loss.detach()))  # noqa: UP031  as people do
        assert str(lines)
        yield loss


@ordinary()
def loss_checked(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = step(model, optimizer, device)
        if torch.isnan(loss) or torch.isinf(loss):
            raise ValueError("diverged")
        assert torch.isfinite(loss).all()
        assert not torch.isnan(loss).any()
        assert (loss > 0).all()
        assert torch.equal(loss, loss)
        assert torch.allclose(loss, loss)
        yield loss


@ordinary()
def arithmetic_with_the_loss(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = None
    for _ in range(3):
        value = step(model, optimizer, device).item()
        first = first or value
        assert math.isfinite(math.log(value) + 1 / value + math.sqrt(value) + math.exp(value) + 100 * value / first)
        yield value


@ordinary()
def columns_and_rows_by_list(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = model[0].weight.new_tensor([1.0, 2.0])
    for _ in range(3):
        out = model(torch.randn(8, model[0].in_features, device=device))
        loss = (out[:, [0, -1]] * weights).mean() + out[[1, 3, 5]].square().mean() + out[[True, False] * 4].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary(warns="Converting a tensor with requires_grad")
def losses_in_a_list(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, best = [], math.inf
    for _ in range(3):
        loss = step(model, optimizer, device)
        losses.append(loss.detach())
        mean = torch.tensor(losses).mean().item()
        best = min(best, torch.tensor([one.cpu() for one in losses]).min().item(), loss.detach().cpu().numpy().item())
        assert math.isfinite(mean + best)
        yield loss


@ordinary()
def early_stop(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = step(model, optimizer, device)
        yield loss
        if loss.item() < 1e-3:
            return


@ordinary()
def early_stop_by_patience(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, patience = float("inf"), 5
    for _ in range(3):
        loss = step(model, optimizer, device)
        with torch.no_grad():
            x, y = (tensor.to(device) for tensor in rows(128))
            validation = F.cross_entropy(model(x), y).item()
        if validation < best - 1e-4:
            best, patience = validation, 5
        else:
            patience -= 1
        yield loss
        if patience == 0:
            break


@ordinary()
def evaluation_between_steps(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model.train()
        loss = step(model, optimizer, device)
        model.eval()
        correct = total = 0
        confusion = torch.zeros(10, 10, dtype=torch.int64, device=device)
        with torch.no_grad():
            for _ in range(2):
                x, y = (tensor.to(device) for tensor in rows(64))
                predicted = model(x).argmax(1)
                correct += (predicted == y).sum().item()
                total += len(y)
                confusion += torch.bincount(10 * y + predicted, minlength=100).reshape(10, 10)
                confusion.view(-1).scatter_add_(0, 10 * y + predicted, torch.ones_like(y))
        accuracy = (predicted == y).float().mean().item()
        per_class = confusion.diag().float() / confusion.sum(1).clamp(min=1)
        assert 0 <= correct / total <= 1
        assert accuracy >= 0
        assert len(per_class.cpu().numpy().round(2)) == 10
        yield loss


@ordinary(differs=HOST)
def tensors_in_a_list(device):
    """The graph of every step is kept, a mistake that many make."""
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, outputs = [], []
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
        outputs.append(out.detach().cpu().numpy())
        assert torch.stack(losses).mean().item() >= 0
        yield loss
    assert sum(out.shape[0] for out in outputs) == 384


@ordinary()
def large_tensors_to_numpy(device):
    model = mlp().to(device)
    for _ in range(3):
        x, y = rows(512)
        assert abs(x.numpy().mean()) < 1
        out = model(x.to(device))
        loss = F.cross_entropy(out, y.to(device))
        loss.backward()
        model.zero_grad()
        assert out.detach().cpu().numpy().shape == (512, 10)
        assert math.isfinite(out.softmax(1).max(1)[0].detach().to("cpu").numpy().sum())
        yield loss


@with_outside()
def model_and_optimizer_outside():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    criterion = nn.CrossEntropyLoss(weight=torch.rand(10))

    def train(device):
        model.to(device)
        criterion.to(device)
        for _ in range(3):
            x, y = (tensor.to(device) for tensor in rows(512))
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            yield loss

    return train, (model, optimizer, scheduler, criterion)


@with_outside(differs=FOREACH)
def optimizer_outside_with_state():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):  # as after a cell that trained
        model(torch.randn(4, 64)).square().mean().backward()
        optimizer.step()

    def train(device):
        model.to(device)
        for state in optimizer.state.values():
            for name, value in state.items():
                if torch.is_tensor(value):
                    state[name] = value.to(device)
        for _ in range(3):
            yield step(model, optimizer, device)

    return train, (model, optimizer)


class Trainer:
    def __init__(self, lr=0.1):
        self.model = mlp()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.history = []

    def train(self, device):
        self.model = self.model.to(device)
        for _ in range(3):
            loss = step(self.model, self.optimizer, device)
            self.history.append(loss.item())
            yield loss


@with_outside()
def bound_method():
    trainer = Trainer()
    return trainer.train, (trainer.model, trainer.optimizer)


@with_outside()
def partial_function():
    def train(device, hidden, lr=0.1):
        model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for _ in range(3):
            yield step(model, optimizer, device)

    return functools.partial(train, hidden=256), ()


class LightningLike(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.logged = mlp(), {}

    @property
    def device(self):
        return next(self.parameters()).device

    def log(self, name, value, prog_bar=False):
        self.logged[name] = value.item() if isinstance(value, torch.Tensor) else value

    def training_step(self, batch, index):
        x, y = (tensor.to(self.device) for tensor in batch)
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        self.log("loss", loss, prog_bar=True)
        self.log("accuracy", (logits.argmax(-1) == y).float().mean())
        return {"loss": loss, "noise": torch.randn(4, device=self.device).mean()}

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


@with_outside()
def lightning_like():
    module = LightningLike()

    def fit(device):
        module.to(device)
        configured = module.configure_optimizers()
        optimizer, scheduler = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
        for index in range(3):
            out = module.training_step(rows(512), index)
            optimizer.zero_grad(set_to_none=True)
            out["loss"].backward()
            optimizer.step()
            scheduler.step()
            yield module.logged["loss"]

    return fit, (module,)


CONFIG = SimpleNamespace(amp=True, clip=1.0)


@ordinary(differs="the CPU autocasts to bfloat16, and a card's optimizers update all parameters at once")
def scaler_and_autocast(device):
    model = mlp().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(device.type, enabled=CONFIG.amp and device.type == "cuda")
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
        with torch.autocast(device_type=device.type, dtype=dtype, enabled=CONFIG.amp):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CONFIG.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()
