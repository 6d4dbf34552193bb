"""Tensors on the card that hold others and say themselves what operators do with them, as torchao's weights."""

import threading
from functools import partial

import pytest
import torch
from torch import nn
from torch._higher_order_ops.out_dtype import out_dtype
from torch.utils._pytree import tree_map_only

from memlab import predict
from tests.vgpu.once import seen

aten = torch.ops.aten
SAME = {aten.detach.default, aten._to_copy.default, aten.clone.default}  # give a wrapper again


class Wrapper(torch.Tensor):
    """Hides a tensor, and computes with it."""

    @staticmethod
    def __new__(cls, inner):
        like = {"dtype": inner.dtype, "device": inner.device, "requires_grad": inner.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **like)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(cls, lambda wrapper: wrapper.inner, (args, kwargs or {}))
        out = func(*args, **kwargs)
        return cls(out) if func in SAME else out


class Flattened(Wrapper):
    """Says what it holds, by PyTorch's protocol."""

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["inner"])


def train(device, kind, autocast=False, moved=False):
    model = nn.Linear(512, 512, device=None if moved else device)
    model.weight = nn.Parameter(kind(model.weight.detach()))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 512, device=device)
    while True:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = model(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def steps_by_hand(device, kind):
    weight = nn.Parameter(kind(torch.randn(512, 512, device=device)))
    x = torch.randn(64, 512, device=device)
    while True:
        (x @ weight).mean().backward()
        with torch.no_grad():
            weight.inner -= 0.1 * weight.grad
        weight.grad = None
        yield


def products_of_integers(device):
    first = torch.ones(32, 512, dtype=torch.int8, device=device)
    while True:
        yield out_dtype(aten.mm.default, torch.int32, first, first.new_ones(512, 256)).float().mean()


LOOPS = {  # and what PyTorch allocates for three steps on an H100
    "train": (partial(train, kind=Wrapper), 73_540_096),
    "train, flattened": (partial(train, kind=Flattened), 73_540_096),
    "autocast": (partial(train, kind=Wrapper, autocast=True), 73_540_096),
    "moved": (partial(train, kind=Flattened, moved=True), 73_540_096),
    "steps by hand": (partial(steps_by_hand, kind=Wrapper), 70_385_664),
    "products of integers": (products_of_integers, 180_224),
}


@pytest.mark.parametrize(("loop", "taken"), LOOPS.values(), ids=LOOPS)
def test_it_takes_what_it_holds(loop, taken, monkeypatch):
    """A tensor that C++ has on a card that is not there would make autograd end the process."""
    monkeypatch.setattr("memlab.vgpu.scratch.cublas.TORCH", (2, 13))  # whose workspaces are in the figures
    assert predict(loop, gpu="H100", steps=3).peak_allocated == taken


def test_it_is_on_the_card():
    def work(device):
        weight = Wrapper(torch.zeros(2, 3, device=device))
        places = [str(tensor.device) for tensor in (weight, weight.to(device), weight.to(0), weight.half())]
        return {*places}, weight.is_cuda, weight.to(device) is weight, weight.cpu().is_cuda

    assert seen(work) == ({"cuda:0"}, True, True, False)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", 0])
def test_its_device_by_any_name(name):
    def work(device):
        weight = torch.Tensor._make_wrapper_subclass(Wrapper, (2, 3), device=name, requires_grad=True)
        return str(weight.device)

    assert seen(work) == "cuda:0"


def test_one_that_says_itself_where_it_is():
    class Asked(Wrapper):
        @staticmethod
        def __new__(cls, inner):
            like = {"dtype": inner.dtype, "device": inner.device, "requires_grad": True}
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **like, dispatch_device=True)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is torch.ops.prim.device.default:
                return args[0].inner.device
            return super().__torch_dispatch__(func, types, args, kwargs)

    def work(device):
        weight = Asked(torch.ones(4, 4, device=device))
        (weight * 2).sum().backward()
        return str(weight.device), str(weight.grad.device)

    assert seen(work) == ("cuda:0", "cuda:0")


def test_those_of_the_host_are_as_they_were():
    names = {"device", "is_cuda", "_make_wrapper_subclass"}
    weight = Wrapper(torch.ones(3, requires_grad=True))

    def used():
        made = Wrapper(torch.ones(3, requires_grad=True))
        (weight * made).sum().backward()
        return str(made.device), made.is_cuda, type(made.detach()) is Wrapper

    def loop(device):
        beside = []
        thread = threading.Thread(target=lambda: beside.append(used()))
        real_start(thread)
        thread.join()
        yield torch.zeros((), device=device)
        assert beside == [used()]

    real_start = threading.Thread.start
    predict(loop, gpu="T4", steps=1)
    assert used() == ("cpu", False, True)
    assert not names & vars(torch.Tensor).keys()
