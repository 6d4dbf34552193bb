"""Tensors of a class of their own, as libraries have them for quantized weights."""

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
