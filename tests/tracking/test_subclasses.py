"""Tensors made of tensors: what they hold is counted, once."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from memlab.run import measure
from memlab.trace import Category
from memlab.tracking import Tracker
from tests.device import DEVICE, counted_by_hand

CPU = torch.device("cpu")


class Scaled(torch.Tensor):
    """Numbers in one byte each, and their scale: a quantized optimizer state, as torchao's."""

    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["codes"], inner["scale"])

    def numbers(self):
        return self.codes * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return return_and_correct_aliasing(func, args, kwargs, cls(args[0].codes.detach(), args[0].scale.detach()))
        if func is torch.ops.aten.copy_.default:
            args[0].codes.copy_(args[1].round().to(torch.int8))
            return args[0]
        return func(*tree_map_only(cls, cls.numbers, args), **tree_map_only(cls, cls.numbers, kwargs or {}))


def scaled(size):
    return Scaled(torch.zeros(size, dtype=torch.int8), torch.ones(()))


def test_the_inner_tensors_are_counted_and_the_outer_is_not():
    with Tracker(CPU) as tracker:
        outer = scaled(1024)
        outer.detach()
        result = outer + 1
        assert tracker.live == 1024 + 4 + 4 * 1024
    assert tracker.xray().peak_allocated == 1024 + 4 + 2 * 4 * 1024  # the numbers, and their sum with 1
    del result


@counted_by_hand
def test_optimizer_state_in_wrappers_is_optimizer_state():
    class Quantized(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                state = self.state[parameter]
                if not state:
                    state["mean"] = scaled(parameter.shape)
                state["mean"].copy_(state["mean"] * 0.9 + parameter.grad)
                parameter.sub_(state["mean"] * 0.1)

    def train(device):
        model = nn.Linear(32, 32, bias=False).to(device)
        optimizer = Quantized(model.parameters())
        while True:
            loss = model(torch.ones(1, 32, device=device)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    trace = measure(train, device=DEVICE)
    assert trace.start[Category.OPTIMIZER_STATE] == 32 * 32 + 4
    assert trace.start[Category.PARAMETER] == 4 * 32 * 32


def test_a_parameter_that_is_a_wrapper_is_a_parameter():
    model = nn.Module()
    model.weight = nn.Parameter(scaled(1024), requires_grad=False)
    model.forward = lambda x: x + model.weight
    with Tracker(CPU) as tracker:
        model(torch.ones(1024))
    xray = tracker.xray()
    assert sum(e.bytes for e in xray.events if e.category is Category.PARAMETER) == 1024 + 4


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_jagged_tensors_are_counted_once_with_the_work_that_they_take():
    rows, width = 30, 16
    layer = nn.Linear(width, width, bias=False)
    jagged = torch.nested.nested_tensor([torch.ones(10, width), torch.ones(20, width)], layout=torch.jagged)
    with Tracker(CPU) as tracker:
        result = layer(jagged)
        made = tracker.live
    xray = tracker.xray()
    assert xray.flops == 2 * rows * width * width
    assert made == 4 * (width * width + 2 * rows * width)  # weight, input, result
    del result


def test_the_gradients_of_an_embedding_that_are_sparse_are_gradients():
    embedding = nn.Embedding(100, 64, sparse=True)
    with Tracker(CPU) as tracker:
        embedding(torch.tensor([1, 2, 3])).sum().backward()
    gradient = embedding.weight.grad
    events = tracker.xray().events
    held = sum(e.bytes for e in events if e.category is Category.GRADIENT)
    assert held == gradient._values().untyped_storage().nbytes() + gradient._indices().untyped_storage().nbytes()


def test_shapes_without_numbers_are_no_memory_and_no_work():
    with Tracker(CPU) as tracker, FakeTensorMode():
        torch.ones(64, 64) @ torch.ones(64, 64)
    xray = tracker.xray()
    assert (xray.events, xray.flops) == ((), 0)


@pytest.fixture
def mesh(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@counted_by_hand
@pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed on this system")
def test_distributed_tensors_are_counted_once(mesh):
    def train(device):
        layer = nn.Linear(64, 64, bias=False)
        layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(0)]))
        optimizer = torch.optim.SGD(layer.parameters(), momentum=0.9, foreach=False)
        x = distribute_tensor(torch.ones(8, 64), mesh, [Replicate()])
        while True:
            loss = layer(x).sum()
            loss.backward()
            optimizer.step()
            yield loss.to_local()
            optimizer.zero_grad()

    trace = measure(train, device=DEVICE, steps=4, xray="every")
    weight = 4 * 64 * 64
    assert trace.start[Category.PARAMETER] == trace.start[Category.GRADIENT] == weight
    assert trace.start[Category.OPTIMIZER_STATE] == weight
    assert trace.flops == 2 * (2 * 8 * 64 * 64)


@counted_by_hand
def test_a_model_within_torch_func_is_measured_too():
    def train(device):
        model, x = nn.Linear(64, 64, bias=False), torch.ones(8, 64)

        def loss_of(parameters, x):
            return torch.func.functional_call(model, parameters, (x,)).square().sum()

        while True:
            parameters = {name: value.detach() for name, value in model.named_parameters()}
            gradients = torch.func.grad(loss_of)(parameters, x)
            of_each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0))(parameters, x)
            assert torch.allclose(of_each["weight"].sum(dim=0), gradients["weight"], atol=1e-3)
            yield None

    trace = measure(train, device=DEVICE)
    assert trace.by_category[Category.PARAMETER] == 4 * 64 * 64
    assert trace.peak_allocated >= 4 * 64 * 64 * (1 + 8)  # the weights, and a gradient for each row
