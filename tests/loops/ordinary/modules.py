"""Modules that are more than weights and a forward."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from tests.loops.ordinary.catalogue import ordinary, with_outside
from tests.loops.ordinary.small import mlp, rows


def trained(device, model):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(256))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary()
def weight_norm(device):
    one, two = parametrizations.weight_norm(nn.Linear(64, 128)), parametrizations.weight_norm(nn.Linear(128, 10))
    yield from trained(device, nn.Sequential(one, nn.ReLU(), two))


@with_outside()
def spectral_norm():
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(64, 128)), nn.ReLU(), nn.Linear(128, 10))
    return lambda device: trained(device, model), (model,)


@ordinary()
def old_spectral_norm(device):
    yield from trained(device, nn.Sequential(nn.utils.spectral_norm(nn.Linear(64, 128)), nn.ReLU(), nn.Linear(128, 10)))


@ordinary(differs="a card's linear algebra takes workspaces of its own")
def orthogonal(device):
    yield from trained(device, nn.Sequential(parametrizations.orthogonal(nn.Linear(64, 64)), nn.Linear(64, 10)))


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


@ordinary()
def parametrized(device):
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    yield from trained(device, model)


@with_outside()
def pruned():
    model = mlp()
    prune.random_unstructured(model[0], "weight", amount=0.3)

    def train(device):
        prune.random_unstructured(model[2], "weight", amount=0.3)
        return trained(device, model)

    return train, (model,)


@ordinary()
def lazy_layers(device):
    model = nn.Sequential(nn.LazyConv2d(8, 3), nn.ReLU(), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(10)).to(
        device
    )
    model(torch.randn(1, 3, 16, 16, device=device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.randn(8, 3, 16, 16, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@with_outside()
def lazy_layer_outside():
    model = nn.Sequential(nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, 10))

    def train(device):
        model.to(device)
        x, y = (tensor.to(device) for tensor in rows(256))
        model(x)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    return train, (model,)


@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor
    loss: torch.Tensor | None = None


class Answering(nn.Module):
    """Gives a dataclass, of parts that give dictionaries, and takes names."""

    def __init__(self):
        super().__init__()
        self.part, self.head = Part(), nn.Linear(128, 10)

    def forward(self, *, inputs, labels=None):
        hidden = self.part(x=inputs)["hidden"]
        logits = self.head(hidden)
        return Output(logits, hidden, F.cross_entropy(logits, labels) if labels is not None else None)


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 128)

    def forward(self, x):
        return {"hidden": self.layer(x).relu()}


@ordinary()
def dataclass_of_dictionaries(device):
    model = Answering().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(256))
        out = model(inputs=x, labels=y)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        yield out.loss


@with_outside()
def tied_weights():
    embedding, head = nn.Embedding(200, 64), nn.Linear(64, 200, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)

    def train(device):
        model.to(device)
        assert model[0].weight is model[1].weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            words = torch.randint(0, 200, (8, 16), device=device)
            loss = F.cross_entropy(model(words).transpose(1, 2), words)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    return train, (model,)


@with_outside()
def head_replaced():
    """Fine-tuning: a new head on a model that is there, and a parameter put in another's place."""
    model = mlp()

    def train(device):
        model[4] = nn.Linear(128, 5)
        model[0].bias = nn.Parameter(torch.zeros(128))
        model[2].weight.data = torch.randn(128, 128) * 0.05
        model.to(device)
        for _ in range(3):
            x, y = (tensor.to(device) for tensor in rows(256))
            loss = F.cross_entropy(model(x), y % 5)
            loss.backward()
            model.zero_grad()
            yield loss

    return train, (model,)


@with_outside()
def buffer_registered():
    model = mlp()
    model.register_buffer("seen", torch.zeros(()))

    def train(device):
        model.to(device)
        model.register_buffer("running", torch.zeros(64, device=device))
        for _ in range(3):
            x, y = (tensor.to(device) for tensor in rows(256))
            model.running.mul_(0.9).add_(x.mean(0), alpha=0.1)
            model.running = model.running.clone()
            model.seen += 1
            loss = F.cross_entropy(model(x - model.running), y)
            loss.backward()
            model.zero_grad()
            yield loss

    return train, (model,)


@with_outside()
def weights_initialized():
    model = mlp()

    def initialize(module):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(module.bias)

    def train(device):
        model.to(device)
        model.apply(initialize)
        with torch.no_grad():
            weight = model[0].weight
            outside = weight.abs() > 0.03
            while outside.any():
                weight.copy_(torch.where(outside, torch.randn_like(weight) * 0.02, weight))
                outside = weight.abs() > 0.03
            nn.init.orthogonal_(model[2].weight)
            nn.init.kaiming_normal_(model[4].weight, nonlinearity="relu")
        yield from trained(device, model)

    return train, (model,)


@ordinary()
def complex_parameters(device):
    weight = nn.Parameter(torch.randn(32, 32, dtype=torch.cfloat, device=device) * 0.1)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    for _ in range(3):
        x = torch.randn(64, 32, dtype=torch.cfloat).to(device)
        loss = (x @ weight).abs().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary()
def batch_norm_in_one_row_less(device):
    model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
    yield from trained(device, nn.Sequential(model, nn.LayerNorm(10)))


class Low(nn.Module):
    """A low-rank adapter around a frozen layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(layer.in_features, 4, bias=False), nn.Linear(4, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


@with_outside()
def adapters_put_in():
    model = mlp()

    def train(device):
        for name, child in list(model.named_children()):
            if isinstance(child, nn.Linear):
                setattr(model, name, Low(child))
        return trained(device, model)

    return train, (model,)


@ordinary(refused="cannot be predicted", differs="refused", warns="`torch.jit.script")
def scripted(device):
    model = torch.jit.script(mlp())
    for _ in range(3):  # its executor first watches, then compiles
        model(torch.randn(256, 64)).sum().backward()
    yield from trained(device, model)


@ordinary(warns="Using `torch.compile")
def compiled(device):
    model = mlp().to(device)
    yield from trained(device, torch.compile(model, backend="aot_eager"))


@torch.library.custom_op("ordinary::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x.clone() * 2


twice.register_autograd(lambda ctx, arriving: arriving * 2)
LIBRARY = torch.library.Library("ordinary", "FRAGMENT")
LIBRARY.define("thrice(Tensor x) -> Tensor")
for key in ("CPU", "CUDA"):
    LIBRARY.impl("thrice", lambda x: x * 3, key)
torch.library.register_autograd("ordinary::thrice", lambda ctx, arriving: arriving * 3, lib=LIBRARY)


def with_custom_operator(device, custom):
    model = nn.Linear(64, 10).to(device)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(256))
        loss = F.cross_entropy(custom(model(x)), y)
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def custom_operator(device):
    yield from with_custom_operator(device, twice)


@ordinary(refused="cannot be predicted", differs="refused")
def custom_operator_without_fake(device):
    yield from with_custom_operator(device, torch.ops.ordinary.thrice)
