"""The host of a predicted card computes for real, but for large floats whose numbers say nothing."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from memlab.vgpu.internals import FakeTensor
from tests.vgpu.once import in_a_prediction, seen


def is_real(make):
    return seen(lambda device: not isinstance(make(), FakeTensor))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(500, 500),
        lambda: torch.linspace(0, 1, 60_000),
        lambda: torch.full((60_000,), 3.0),
        lambda: torch.arange(60_000.0),
        lambda: torch.zeros(200, 300),
        lambda: torch.randint(0, 9, (500, 500)),
        lambda: torch.randperm(100_000),
        lambda: torch.arange(100_000),
        lambda: torch.zeros(500, 500, dtype=torch.bool),
        lambda: torch.tensor([0.5] * 70_000),
    ],
)
def test_what_may_steer_a_loop_is_real(make):
    assert is_real(make)


@pytest.mark.parametrize(
    "make",
    [lambda: torch.randn(600, 600), lambda: torch.empty(2000), lambda: torch.zeros(600, 600)],
)
def test_large_floats_that_say_nothing_are_not(make):
    assert not is_real(make)


def test_a_schedule_of_thousands_of_numbers_has_them():
    def work(device):
        steps = torch.linspace(0, math.pi, 5001)
        rates = 0.5 * (1 + steps.cos())
        return rates[0].item(), rates[-1].item(), rates[2500].item(), torch.arange(5000.0)[4321].item()

    result, trace = in_a_prediction(work)
    assert result == work(None)
    assert trace.guesses == ()


def test_a_diffusion_schedule_has_its_numbers():
    def work(device):
        alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 4000), 0)
        return alphas[3999].item(), alphas.to(device).shape

    assert seen(work)[0] == work("cpu")[0]


def test_a_positional_encoding_is_worked_out():
    def work(device):
        positions, rates = torch.arange(500.0)[:, None], torch.exp(torch.arange(0, 64, 2) * -0.1)
        return torch.sin(positions * rates)[499, 3].item()

    assert seen(work) == work(None)


def test_data_that_was_there_is_itself():
    data = torch.randn(600, 600)
    assert seen(lambda device: (data.sum().item(), isinstance(data, FakeTensor))) == (data.sum().item(), False)


def test_large_layers_cost_no_memory_of_the_host():
    weight = seen(lambda device: isinstance(nn.Linear(100_000, 100_000).weight.data, FakeTensor))
    assert weight  # 37 GiB


def test_integers_that_come_home_are_real():
    def work(device):
        return torch.arange(5000, device=device).cpu().tolist()[:3], torch.zeros(5000, dtype=torch.bool).to(
            device
        ).cpu().any().item()

    assert seen(work)[1] is False


def test_small_floats_that_come_home_are_real():
    def work(device):
        return isinstance(torch.randn(1000, device=device).cpu(), FakeTensor), torch.tensor(
            2.5, device=device
        ).cpu().item()

    assert seen(work) == (False, 2.5)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_number_that_nobody_knows_is_asked_for_where_it_came_home_too(shape):
    def work(device):
        loss = torch.randn(shape, device=device).exp()
        home = loss.cpu()
        return home.shape, home.item(), float(loss.to("cpu")), home.numpy().sum(), f"{loss.double().cpu().sum():.1f}"

    found, trace = in_a_prediction(work)
    assert found == (shape, 1, 1, 1, "1.0")
    assert trace.guesses


def test_to_bring_a_number_home_is_not_to_ask_for_it():
    assert not in_a_prediction(lambda device: torch.randn((), device=device).cpu().shape)[1].guesses


def test_large_floats_that_come_home_have_the_right_shape():
    def work(device):
        home = torch.randn(30, 50, device=device).half().cpu()
        return home.shape, home.dtype, home.device.type

    assert seen(work) == ((30, 50), torch.float16, "cpu")


def test_a_tensor_that_was_there_takes_what_comes_from_the_card():
    large, small = torch.ones(600, 600), torch.zeros(3, dtype=torch.int64)

    def work(device):
        large.copy_(torch.randn(600, 600, device=device))
        small.copy_(torch.arange(3, device=device))
        return large.shape, small.tolist()

    assert seen(work) == ((600, 600), [0, 1, 2])
    assert (large == 1).all()
    assert small.tolist() == [0, 0, 0]


def test_a_data_loader_gives_real_batches():
    def work(device):
        data = TensorDataset(torch.arange(12.0).view(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
        torch.manual_seed(3)
        return [(x.tolist(), y.tolist()) for x, y in DataLoader(data, batch_size=2, shuffle=True)]

    with torch.random.fork_rng(devices=[]):
        expected = work(None)
    assert seen(work) == expected


def test_a_nested_list_becomes_a_tensor():
    assert seen(lambda device: torch.tensor([[1.5, 2], [3, 4]]).T.tolist()) == [[1.5, 3], [2, 4]]


def test_gradients_on_the_host_are_worked_out():
    def work(device):
        x = torch.tensor(3.0, requires_grad=True)
        (x**2).backward()
        return x.grad.item()

    assert seen(work) == 6


def test_a_model_that_trains_on_the_host_learns():
    def work(device):
        weight = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            (weight - 1).square().sum().backward()
            optimizer.step()
        return weight.tolist()

    assert seen(work) == pytest.approx(work(None))


def test_only_the_card_is_counted():
    def work(device):
        kept = torch.randn(600, 600), torch.arange(5000), nn.Linear(500, 500)
        return torch.cuda.memory_allocated(), len(kept)

    result, trace = in_a_prediction(work)
    assert result[0] == 0
    assert trace.peak_allocated == 0


def test_numbers_of_a_large_random_tensor_can_be_asked_for():
    def work(device):
        x = torch.randn(500, 50)
        x = (x - x.mean(0)) / x.std(0)
        return bool(x.mean().abs() < 1e-3)

    assert seen(work)


def test_mapped_and_numpy_memory_is_read(tmp_path):
    import numpy as np

    np.arange(6, dtype=np.int64).tofile(tmp_path / "tokens.bin")

    def work(device):
        tokens = torch.from_numpy(np.memmap(tmp_path / "tokens.bin", dtype=np.int64, mode="r+"))
        return tokens[2:4].to(device).tolist()

    assert seen(work) == [2, 3]


def test_what_is_drawn_for_a_layer_is_drawn_before_the_order_of_the_samples():
    def work(device):
        torch.manual_seed(7)
        nn.init.normal_(torch.empty(768, 2))
        layer = nn.Linear(40, 50)
        return torch.randperm(8).tolist(), isinstance(layer.weight, FakeTensor)

    torch.manual_seed(7)
    torch.empty(768, 2).normal_()
    nn.Linear(40, 50)
    assert seen(work) == (torch.randperm(8).tolist(), True)
