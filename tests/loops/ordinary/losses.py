"""Losses: contrastive, triplet, CTC, weighted, focal, Dice, several at once."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.loops.ordinary.catalogue import ordinary
from tests.loops.ordinary.small import mlp, rows


def trained(device, loss_of, outputs=10):
    """A loop around ``loss_of(out, y)``."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, outputs)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(64, 32), nn.Linear(64, 32)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, images, texts):
        one, two = F.normalize(self.image(images), dim=-1), F.normalize(self.text(texts), dim=-1)
        logits = self.logit_scale.exp() * one @ two.t()
        labels = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


@ordinary()
def contrastive(device):
    model = Clip().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.randn(128, 64, device=device), torch.randn(128, 64, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        yield loss


@ordinary()
def nt_xent(device):
    model = mlp().to(device)
    for _ in range(3):
        one, two = model(torch.randn(64, 64, device=device)), model(torch.randn(64, 64, device=device))
        z = F.normalize(torch.cat([one, two]), dim=1)
        similar = z @ z.t() / 0.5
        similar.fill_diagonal_(-9e15)
        loss = F.cross_entropy(similar, (torch.arange(128, device=device) + 64) % 128)
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def triplet(device):
    model, criterion = mlp().to(device), nn.TripletMarginLoss(margin=1.0)
    for _ in range(3):
        anchor, near, far = (model(torch.randn(128, 64, device=device)) for _ in range(3))
        loss = criterion(anchor, near, far)
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs="a card's CTC loss is another kernel")
def ctc(device):
    model, criterion = nn.Linear(16, 20).to(device), nn.CTCLoss(blank=0, zero_infinity=True)
    for _ in range(3):
        log_probs = F.log_softmax(model(torch.randn(30, 4, 16, device=device)), dim=2)
        targets = torch.randint(1, 20, (4, 8)).to(device)
        lengths, target_lengths = torch.full((4,), 30, dtype=torch.long), torch.randint(4, 8, (4,))
        loss = criterion(log_probs, targets, lengths, target_lengths)
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs="a card's CTC loss is another kernel")
def ctc_with_lengths_on_the_card(device):
    model, criterion = nn.Linear(16, 20).to(device), nn.CTCLoss()
    for _ in range(3):
        log_probs = F.log_softmax(model(torch.randn(30, 4, 16, device=device)), dim=2)
        targets = torch.randint(1, 20, (4, 8)).to(device)
        lengths, target_lengths = torch.full((4,), 30).to(device), torch.randint(4, 8, (4,)).to(device)
        loss = criterion(log_probs, targets, lengths, target_lengths)
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def label_smoothing_and_ignored(device):
    def loss_of(out, y):
        y = y.masked_fill(y == 0, -100)
        return F.cross_entropy(out, y, ignore_index=-100, label_smoothing=0.1)

    yield from trained(device, loss_of)


@ordinary()
def weighted_classes(device):
    weight = torch.tensor([1.0, 2.0] * 5, device=device)
    yield from trained(device, nn.CrossEntropyLoss(weight=weight))


@ordinary()
def positive_weights(device):
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.full([10], 3.0, device=device))
    yield from trained(device, lambda out, y: criterion(out, F.one_hot(y, 10).float()))


@ordinary()
def focal(device):
    def loss_of(out, y):
        ce = F.cross_entropy(out, y, reduction="none")
        p = torch.exp(-ce)
        return (0.25 * (1 - p) ** 2 * ce).mean()

    yield from trained(device, loss_of)


@ordinary()
def dice(device):
    def loss_of(out, y):
        p, target = out.sigmoid().flatten(), F.one_hot(y, 10).float().flatten()
        return 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)

    yield from trained(device, loss_of)


@ordinary()
def huber_and_quantiles(device):
    def loss_of(out, y):
        y = y.float()[:, None].expand_as(out)
        error = y - out
        quantile = torch.max(0.9 * error, -0.1 * error).mean()
        return F.smooth_l1_loss(out, y) + F.huber_loss(out, y) + quantile

    yield from trained(device, loss_of)


@ordinary()
def several_tasks(device):
    trunk = nn.Sequential(nn.Linear(64, 128), nn.ReLU()).to(device)
    heads = nn.ModuleDict({"class": nn.Linear(128, 10), "size": nn.Linear(128, 1)}).to(device)
    log_vars = nn.Parameter(torch.zeros(2, device=device))
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters(), log_vars], lr=0.01)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        h = trunk(x)
        losses = {
            "class": F.cross_entropy(heads["class"](h), y),
            "size": F.mse_loss(heads["size"](h).squeeze(-1), x.norm(dim=1)),
        }
        loss = sum(torch.exp(-v) * part + v for v, part in zip(log_vars, losses.values(), strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report = {name: part.item() for name, part in losses.items()}
        yield sum(report.values())


@ordinary()
def two_backwards(device):
    """Two losses that share a trunk, one backward each."""
    trunk, one, two = nn.Linear(64, 128).to(device), nn.Linear(128, 10).to(device), nn.Linear(128, 10).to(device)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        h = trunk(x).relu()
        first, second = F.cross_entropy(one(h), y), F.cross_entropy(two(h), y)
        first.backward(retain_graph=True)
        second.backward()
        for module in (trunk, one, two):
            module.zero_grad()
        yield first + second


@ordinary()
def mixture_density(device):
    def loss_of(out, y):
        logits, means, log_scales = out.chunk(3, dim=1)
        distribution = torch.distributions.MixtureSameFamily(
            torch.distributions.Categorical(logits=logits),
            torch.distributions.Normal(means, log_scales.exp()),
        )
        return -distribution.log_prob(y.float()).mean()

    yield from trained(device, loss_of, outputs=30)


@ordinary(differs="a card has kernels of its own for the distances")
def prototypes(device):
    model = mlp().to(device)
    for _ in range(3):
        support, queries = model(torch.randn(50, 64, device=device)), model(torch.randn(100, 64, device=device))
        centres = support.view(10, 5, -1).mean(1)
        distances = torch.cdist(queries, centres)
        loss = F.cross_entropy(-distances, torch.arange(10, device=device).repeat_interleave(10))
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def style_by_gram(device):
    convolution = nn.Conv2d(3, 16, 3, padding=1).to(device).requires_grad_(False)
    picture = torch.rand(1, 3, 32, 32, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([picture], lr=0.1)

    def gram(x):
        f = convolution(x).relu().flatten(2)
        return f @ f.transpose(1, 2) / f.shape[-1]

    with torch.no_grad():
        wanted = gram(torch.rand(1, 3, 32, 32, device=device))
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.mse_loss(gram(picture), wanted)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            picture.clamp_(0, 1)
        yield loss.item()
