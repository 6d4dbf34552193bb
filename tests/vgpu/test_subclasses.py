"""Tensors of a class of their own, as libraries have them for quantized weights."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from memlab import predict
from tests.vgpu.once import seen


class Quantized(nn.Parameter):
    """A weight that becomes one byte for each number on its way to a card, and remembers the scale of each row."""

    def __new__(cls, data, scales=None):
        self = torch.Tensor._make_subclass(cls, data, False)
        self.scales = scales
        return self

    def cuda(self, device=None):
        return self.to("cuda" if device is None else device)

    def to(self, *args, **kwargs):
        device, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if self.dtype is torch.int8 or device is None:
            moved = Quantized(super().to(*args, **kwargs), self.scales)
            if self.scales is not None and device is not None:
                moved.scales = self.scales.to(device)
            return moved
        weight = self.data.to(device)
        self.scales = weight.abs().amax(1, keepdim=True)
        self.data = (weight / self.scales * 127).to(torch.int8)
        return self


class QuantizedLinear(nn.Linear):
    def __init__(self, size, device=None):
        super().__init__(size, size, bias=False, device=device)
        self.weight = Quantized(self.weight.data)

    def forward(self, x):
        assert isinstance(self.weight, Quantized)
        return x @ (self.weight.data * (self.weight.scales / 127)).T


WAYS = {
    "model.to": lambda model, device: model.to(device),
    "model.cuda": lambda model, device: model.cuda(),
    "twice": lambda model, device: model.to(device).to(device),
    "each module": lambda model, device: model.apply(lambda module: module.to(device)),
}


@pytest.mark.parametrize("size", [16, 512])  # whose numbers are real on the host, and are not
@pytest.mark.parametrize("move", WAYS.values(), ids=WAYS)
def test_a_weight_that_is_quantized_as_it_moves(move, size):
    def work(device):
        model = move(nn.Sequential(QuantizedLinear(size), nn.ReLU()), device)
        weight = model[0].weight
        model(torch.randn(4, size, device=device, requires_grad=True)).sum().backward()
        kinds = isinstance(weight, Quantized), isinstance(weight, nn.Parameter), weight.dtype
        is_counted = torch.cuda.memory_allocated() >= size * size
        return *kinds, str(weight.device), str(weight.scales.device), next(model.parameters()) is weight, is_counted

    assert seen(work) == (True, True, torch.int8, "cuda:0", "cuda:0", True, True)


def test_it_is_made_of_what_is_on_the_card():
    def work(device):
        weight = Quantized(torch.randn(64, 64, device=device))
        copy = Quantized(weight.to(device).data, weight.scales)
        back = copy.to("cpu")
        return weight.dtype, type(copy).__name__, isinstance(copy, Quantized), str(back.device), str(back.scales.device)

    assert seen(work) == (torch.int8, "Quantized", True, "cpu", "cpu")


def test_a_model_made_before_is_as_it_was():
    model = QuantizedLinear(300)
    weight, kept = model.weight, model.weight.detach().clone()

    def train(device):
        model.to(device)
        for _ in range(2):
            yield model(torch.randn(4, 300, device=device)).sum()

    peaks = {predict(train, gpu="T4").peak_allocated for _ in range(2)}
    assert len(peaks) == 1
    assert model.weight is weight
    assert (type(weight), weight.dtype, weight.device.type) == (Quantized, torch.float32, "cpu")
    assert weight.scales is None
    assert torch.equal(weight, kept)


def test_its_bytes_are_parameters():
    def train(device):
        model = QuantizedLinear(1024).to(device)
        head = nn.Linear(1024, 1, device=device)
        while True:
            loss = head(model(torch.randn(4, 1024, device=device))).sum()
            loss.backward()
            yield loss

    assert predict(train, gpu="T4").start["parameter"] == 1024 * 1024 + 4 * 1024 + 4


class Picture(torch.Tensor):
    """Does nothing of its own."""


MAKING = {
    "as_subclass": lambda data: data.as_subclass(Picture),
    "_make_subclass": lambda data: torch.Tensor._make_subclass(Picture, data),
}


@pytest.mark.parametrize("make", MAKING.values(), ids=MAKING)
def test_a_tensor_of_another_class(make):
    def work(device):
        picture = make(torch.randn(3, 8, 8, device=device))
        larger = picture * 2
        return isinstance(picture, Picture), larger.shape, str(larger.device), picture.is_contiguous()

    assert seen(work) == (True, (3, 8, 8), "cuda:0", True)


def test_a_tensor_is_of_its_class_no_longer():
    def work(device):
        picture = torch.randn(3, device=device).as_subclass(Picture)
        plain = picture.as_subclass(torch.Tensor)
        return isinstance(picture, Picture), isinstance(plain, Picture), (plain * 2).shape

    assert seen(work) == (True, False, (3,))


def test_a_weight_copies_itself():
    """As bitsandbytes' do in ``copy.deepcopy``: an empty one is made, and is given what the other knows."""

    def work(device):
        weight = QuantizedLinear(64).to(device).weight
        copy = type(weight).__new__(type(weight), torch.empty(0))
        copy.scales, copy.data = weight.scales.clone(), weight.data.clone()
        return isinstance(copy, Quantized), copy.dtype, copy.shape, str(copy.device), copy.scales.shape

    assert seen(work) == (True, torch.int8, (64, 64), "cuda:0", (64, 1))


def test_a_layer_without_a_size_yet_is_made_on_the_card():
    def work(device):
        layer = nn.LazyLinear(4, device=device)
        out = layer(torch.randn(2, 3, device=device))
        return out.shape, str(layer.weight.device), type(layer.weight) is not nn.UninitializedParameter

    assert seen(work) == ((2, 4), "cuda:0", True)


class Tagged(torch.Tensor):
    """Copies what it knows to all that is made of it, as tensors of fastai and MONAI do."""

    @staticmethod
    def __new__(cls, data, tag=None):
        self = super().__new__(cls, data)
        self.tag = tag
        return self

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        known = next((arg for arg in args if isinstance(arg, Tagged)), None)
        if isinstance(out, Tagged) and known is not None:
            out.__dict__ = copy.copy(known.__dict__)
        return out

    def new_empty(self, *args, **kwargs):
        raise AssertionError("PyTorch does not call this on a card")


def train_on_tagged(device, tagged_on_card=False):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        if tagged_on_card:
            images = Tagged(torch.rand(8, 3, 32, 32, device=device), "card")
        else:
            images = Tagged(torch.rand(8, 3, 32, 32), "host").to(device)
        out = model(images)
        assert out.tag == ("card" if tagged_on_card else "host")
        loss = nn.functional.cross_entropy(out, torch.zeros(8, dtype=torch.long, device=device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def train_tagged(device):
    layer = nn.Linear(8, 8)
    layer.weight = nn.Parameter(Tagged(layer.weight.detach(), "weight"))
    layer.register_buffer("scale", Tagged(torch.ones(8), "scale"))
    layer.to(device)
    assert (layer.weight.tag, layer.scale.tag) == ("weight", "scale")
    optimizer = torch.optim.AdamW(layer.parameters())
    while True:
        loss = (layer(torch.rand(4, 8, device=device)) * layer.scale).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


TAGGED = {  # and what PyTorch allocates for three steps on a T4
    "moved": (train_on_tagged, 18_533_376),
    "made on the card": (partial(train_on_tagged, tagged_on_card=True), 18_533_376),
    "parameters and buffers": (train_tagged, 17_046_016),
}


@pytest.mark.parametrize(("loop", "taken"), TAGGED.values(), ids=TAGGED)
def test_results_are_of_the_class(loop, taken, monkeypatch):
    monkeypatch.setattr("memlab.vgpu.scratch.cublas.TORCH", (2, 13))  # whose workspaces are in the figures
    assert predict(loop, gpu="T4", steps=3).peak_allocated == taken


def test_copied_attributes_leave_a_tensor_where_it_is():
    def work(device):
        there, here = Tagged(torch.full((), 2.0, device=device), "there"), Tagged(torch.rand(600, 600), "here")
        here.__dict__ = there.__dict__
        there.__dict__.update(here.__dict__)
        return str(there.device), str(here.device), here.tag, sorted(copy.deepcopy(there.__dict__)), there.item()

    assert seen(work) == ("cuda:0", "cpu", "there", ["tag"], 2)


def test_methods_are_known_in_tables_of_pytorchs():
    """As torchvision's, of those that keep the class."""
    kept = {torch.Tensor.to, torch.Tensor.clone}
    called = []

    class Choosy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            called.append(func in kept)
            return super().__torch_function__(func, types, args, kwargs or {})

    seen(lambda device: str(torch.ones(2).as_subclass(Choosy).to(device).clone().shape))
    assert called[:2] == [True, True]


def test_a_layer_of_the_class_made_before_is_as_it_was():
    layer = nn.Linear(8, 8)
    layer.weight = nn.Parameter(Tagged(layer.weight.detach(), "weight"))
    layer.register_buffer("scale", Tagged(torch.ones(8), "scale"))
    weight, scale, kept = layer.weight, layer.scale, layer.weight.detach().clone()

    def train(device):
        optimizer = torch.optim.SGD(layer.to(device).parameters(), 1.0)
        while True:
            (layer(torch.rand(4, 8, device=device)) * layer.scale).sum().backward()
            optimizer.step()
            yield

    predict(train, gpu="T4")
    assert layer.weight is weight
    assert layer.scale is scale
    assert {type(weight), type(scale), type(layer(torch.ones(8)))} == {Tagged}
    assert (weight.device.type, weight.tag, weight.grad) == ("cpu", "weight", None)
    assert torch.equal(weight, kept)
    assert "__new__" not in vars(torch.Tensor)
    assert Tagged(torch.ones(2), "real").to("cpu").tag == "real"
