"""Tensors of a prediction: where they go, how they are shown, copied and given to numpy."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from memlab.errors import WrongDevice
from tests.vgpu.once import in_a_prediction, seen

CARD = torch.device("cuda", 0)
NAMES = ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda:0"), torch.device("cuda", 0), 0]
names = pytest.mark.parametrize("name", NAMES, ids=repr)


# Addresses


def test_tensors_that_share_memory_have_one_address_and_others_have_others():
    def addresses(device):
        first, second = torch.zeros(4, 4, device=device), torch.zeros(4, 4, device=device)
        views = [first.t(), first.view(16), first[0]]
        assert first[1].data_ptr() - first.data_ptr() == 16
        return [tensor.data_ptr() for tensor in (first, *views)], second.data_ptr()

    shared, other = seen(addresses)
    assert len({0, *shared, other}) == 3


def test_a_storage_that_is_freed_has_no_address():
    def address(device):
        storage = torch.zeros(4, device=device).untyped_storage()
        storage.resize_(0)
        return storage.data_ptr()

    assert seen(address) == 0


# Data that come and go


def test_data_that_are_away_share_what_they_share():
    """FullyShardedDataParallel with ``cpu_offload`` asks, and else writes its parameters back."""

    def work(device):
        flat, other = (torch.zeros(8, device=device) for _ in range(2))
        host = torch.ones(8)
        flat.data, other.data = host, host[4:]
        alone = torch.zeros(8, device=device)
        alone.data = torch.ones(8)
        return [tensor.untyped_storage().data_ptr() for tensor in (flat, other, alone)]

    flat, other, alone = seen(work)
    assert flat == other != alone


def test_a_parameter_whose_data_were_away_gets_its_gradient():
    def work(device):
        layer = torch.nn.Linear(512, 512, bias=False).to(device)
        out = layer(torch.ones(2, 512, device=device))
        there = torch.cuda.memory_allocated()
        layer.weight.data = layer.weight.data.cpu()
        away, place = torch.cuda.memory_allocated(), layer.weight.device.type
        layer.weight.data = layer.weight.data.to(device)
        out.sum().backward()
        return there, away, place, layer.weight.grad.device.type

    there, away, place, gradient = seen(work)
    assert (place, gradient) == ("cpu", "cuda")
    assert away == there - 4 * 512 * 512


# The names of the card


def test_the_device_that_train_is_given_is_cuda():
    assert seen(lambda device: (device, device.type, device.index, str(device))) == (CARD, "cuda", 0, "cuda:0")


@names
def test_a_tensor_of_the_host_goes_there_by_any_name(name):
    def work(device):
        x = torch.ones(3)
        return [moved.device for moved in (x.to(name), x.to(device=name), x.to(name, torch.float16), x.cuda(name))]

    assert seen(work) == [CARD] * 4


@names
def test_a_large_tensor_of_the_host_goes_there_by_any_name(name):
    def work(device):
        x = torch.randn(600, 600)  # fake on the host, too
        return [moved.device for moved in (x.to(name), x.to(device=name), x.to(name, torch.float16), x.cuda(name))]

    assert seen(work) == [CARD] * 4


@names
def test_a_tensor_of_the_card_stays_what_it_is_by_any_name(name):
    def work(device):
        x = torch.ones(3, device=device)
        return [moved is x for moved in (x.to(name), x.to(device=name), x.cuda(name), x.cuda())]

    assert seen(work) == [True] * 4


@names
def test_a_module_goes_there_by_any_name(name):
    def work(device):
        first, second, third = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        first.to(name), second.to(device=name), third.to(name, torch.float16)
        return [module.weight.device for module in (first, second, third)], third.weight.dtype

    assert seen(work) == ([CARD] * 3, torch.float16)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", torch.device("cuda"), 0])
def test_tensors_are_made_there_by_any_name(name):
    def work(device):
        made = [
            torch.ones(3, device=name), torch.tensor([1, 2], device=name), torch.randn(3, device=name),
            torch.arange(3, device=name), torch.as_tensor([1.0], device=name), torch.ones(2).new_zeros(2, device=name),
            torch.zeros_like(torch.ones(2), device=name), nn.Linear(2, 2, device=name).weight,
        ]  # fmt: skip
        return {tensor.device for tensor in made}

    assert seen(work) == {CARD}


def test_numbers_of_the_card_become_a_tensor_in_the_context_of_a_device():
    def work(device):
        with device:
            scaled = [freq / 2 for freq in torch.ones(3)]  # torchtune's rotary frequencies
            made = torch.tensor(scaled, dtype=torch.float16, device=device)
        return made.device, made.dtype, tuple(made.shape)

    assert seen(work) == (CARD, torch.float16, (3,))


def test_a_table_that_a_library_filled_in_one_prediction_is_read_in_the_next():
    tables = []

    def imported(device):  # a library, whose table lives as long as the process
        tables.append({torch.Tensor.to: "to", torch.Tensor.cuda: "cuda"})

    def used(device):
        return [tables[0].get(torch.Tensor.to), tables[0].get(torch.Tensor.cuda), tables[0].get(torch.Tensor.numpy)]

    seen(imported)
    assert seen(used) == ["to", "cuda", None]
    assert tables[0].get(torch.Tensor.to) == "to"


def test_a_device_is_known_by_its_number():
    def work(device):
        named = torch.device(torch.cuda.current_device())
        with torch.device(0):
            inside = torch.ones(2).device
        return named, inside, isinstance(named, torch.device), torch.device("cpu"), torch.device(type="cpu", index=0)

    assert seen(work) == (CARD, CARD, True, torch.device("cpu"), torch.device("cpu:0"))


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="there PyTorch knows what device 0 is")
def test_a_bare_number_is_refused_where_pytorch_does_not_know_it():
    with pytest.raises(WrongDevice, match=r"by its number alone at test_tensors\.py:\d+.*write 'cuda:0'"):
        seen(lambda device: torch.UntypedStorage(3, device=0))


def test_cuda_without_an_argument():
    def work(device):
        return [torch.ones(3).cuda().device, torch.randn(600, 600).cuda().device, nn.Linear(2, 2).cuda().weight.device]

    assert seen(work) == [CARD] * 3


def test_to_another_tensor_is_to_its_device():
    def work(device):
        there = torch.ones(1, device="cuda", dtype=torch.float16)
        moved = torch.ones(3).to(there)
        return moved.device, moved.dtype, there.cpu().device.type

    assert seen(work) == (CARD, torch.float16, "cpu")


@pytest.mark.parametrize("name", ["cuda", "cuda:0", torch.device("cuda")])
def test_it_may_be_the_default_device(name):
    def work(device):
        torch.set_default_device(name)
        return torch.ones(2).device, nn.Linear(2, 2).weight.device

    assert seen(work) == (CARD, CARD)
    assert torch.ones(2).device.type == "cpu"


def test_it_may_be_a_context():
    def work(device):
        with torch.device("cuda"):
            inside = torch.ones(2).device
        return inside, torch.ones(2).device.type

    assert seen(work) == (CARD, "cpu")


@pytest.mark.parametrize("move", [lambda x, name: x.to(name), lambda x, name: torch.ones(2, device=name)])
@pytest.mark.parametrize("name", ["cuda:1", "xpu"])
def test_another_device_is_refused_with_the_line(name, move):
    with pytest.raises(
        WrongDevice, match=r"names the device '(cuda:1|xpu)' at test_tensors\.py:\d+: a prediction is for"
    ):
        seen(lambda device: move(torch.ones(3), name))


@pytest.mark.parametrize("make", [lambda: torch.ones(3), lambda: torch.randn(600, 600)], ids=["small", "large"])
def test_a_tensor_says_where_it_is(make):
    def work(device):
        host, card = make(), make().cuda()
        return [(x.is_cuda, x.is_cpu, x.device.type, x.get_device()) for x in (host, card)]

    assert seen(work) == [(False, True, "cpu", -1), (True, False, "cuda", 0)]


def test_a_parameter_says_where_it_is():
    def work(device):
        module = nn.Linear(2, 2)
        before = module.weight.is_cuda
        module.cuda()
        return before, module.weight.is_cuda, next(module.parameters()).device

    assert seen(work) == (False, True, CARD)


# Numbers as text, as arrays, and copies


@pytest.mark.parametrize("size", [3, 600])
def test_a_parameter_is_made_as_another_is(size):
    def work(device):
        empty = nn.Linear(size, size, device="meta").weight
        made = type(empty)(torch.randn(size, size), requires_grad=False)
        return isinstance(made, nn.Parameter), made.device.type, made.requires_grad, made.cuda().device

    assert seen(work) == (True, "cpu", False, CARD)


def test_the_two_devices_have_names_in_an_error():
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        seen(lambda device: torch.ones(3, device="cuda").numpy())


def test_a_loss_can_be_formatted():
    assert seen(lambda device: f"{torch.ones(100, device=device).sum():.3f}") == "1.000"  # a guess


def test_a_known_number_can_be_formatted():
    assert (
        seen(lambda device: f"{torch.tensor(7, device=device):03d} {torch.tensor(2.5, device=device):.2f}")
        == "007 2.50"
    )


def test_a_large_tensor_is_not_formatted():
    with pytest.raises(TypeError, match="unsupported format string"):
        seen(lambda device: f"{torch.ones(3, device=device):.3f}")


def test_a_tensor_on_the_card_shows_its_device():
    text = seen(lambda device: f"{torch.randn(30, 20, device=device)!r}")
    assert "size=(30, 20)" in text
    assert "cuda" in text


def test_an_array_of_the_host_has_its_numbers():
    assert seen(lambda device: torch.arange(4.0).numpy().tolist()) == [0, 1, 2, 3]


def test_an_array_and_its_tensor_share_their_numbers():
    def work(device):
        x = torch.zeros(3)
        x.numpy()[1] = 5
        return x.tolist()

    assert seen(work) == [0, 5, 0]


def test_large_random_numbers_of_the_host_become_an_array():
    array = seen(lambda device: torch.randn(900, 300).numpy())
    assert isinstance(array, np.ndarray)
    assert array.shape == (900, 300)
    assert array.dtype == np.float32


def test_what_comes_from_the_card_becomes_an_array():
    def work(device):
        large, small = torch.randn(900, 300, device=device), torch.arange(3, device=device)
        return large.detach().cpu().numpy().shape, small.cpu().numpy().tolist(), large.numpy(force=True).shape

    assert seen(work) == ((900, 300), [0, 1, 2], (900, 300))


def test_a_card_tensor_is_refused_as_cuda_refuses_it():
    with pytest.raises(RuntimeError, match=r"Use tensor\.detach\(\)\.numpy\(\) instead"):
        seen(lambda device: torch.randn(900, 300, requires_grad=True).numpy())


def test_a_module_is_copied_twice():
    def work(device):
        model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).to(device)
        first, second = copy.deepcopy(model), copy.deepcopy(model)
        return [part[0].weight.device for part in (model, first, second)], torch.cuda.memory_allocated()

    devices, held = seen(work)
    assert devices == [CARD] * 3
    assert held == 3 * (64 * 64 * 4 + 5 * 512 + 512)  # weight, five vectors and the count of batches


def test_a_copy_of_a_module_of_the_host():
    def work(device):
        twin = copy.deepcopy(nn.Linear(900, 300))  # so large that its numbers are not kept
        return type(twin.weight) is nn.Parameter or isinstance(twin.weight, nn.Parameter), twin.cuda().weight.device

    assert seen(work) == (True, CARD)


def test_tied_weights_stay_tied_in_a_copy():
    def work(device):
        model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)).to(device)
        model[1].weight = model[0].weight
        twin = copy.deepcopy(model)
        return twin[1].weight is twin[0].weight, twin[0].weight is model[0].weight

    assert seen(work) == (True, False)


def test_a_copy_has_its_gradient_and_asks_for_one():
    def work(device):
        frozen = nn.Parameter(torch.ones(3, device=device), requires_grad=False)
        weight = nn.Parameter(torch.ones(3, device=device))
        weight.sum().backward()
        twin = copy.deepcopy(weight)
        return twin.grad is not weight.grad, twin.grad.device, twin.requires_grad, copy.deepcopy(frozen).requires_grad

    assert seen(work) == (True, CARD, True, False)


def test_a_known_number_is_known_in_a_copy():
    assert seen(lambda device: copy.deepcopy(torch.tensor(7, device=device)).item()) == 7


def test_what_has_a_graph_is_not_copied():
    with pytest.raises(RuntimeError, match="created explicitly by the user"):
        seen(lambda device: copy.deepcopy(torch.ones(3, device=device, requires_grad=True) * 2))


def test_copying_a_prediction_twice_in_one_process():
    def work(device):
        return copy.deepcopy(nn.TransformerEncoderLayer(8, 2).to(device)).linear1.weight.device

    assert [in_a_prediction(work)[0] for _ in range(2)] == [CARD] * 2


# Made from numbers, and indexed by them


@pytest.mark.parametrize("function", ["tensor", "as_tensor", "asarray"])
def test_a_tensor_is_made_from_numbers_on_the_card(function):
    def work(device):
        make = getattr(torch, function)  # what it is in a prediction
        losses = torch.randn(2, device=device) + 1
        return (
            make([1, 2], device="cuda").tolist(),
            make([losses[0], losses[1].cpu(), 2], device=device).device,
            make([[losses[0], 0.5], [2, losses[1]]]).tolist(),
            make([losses[0].half()]).dtype,
        )

    results, trace = in_a_prediction(work)
    assert results == ([1, 2], CARD, [[1, 0.5], [2, 1]], torch.float16)  # 1 is what stands for a number nobody knows
    assert trace.guesses


def test_a_tensor_is_made_as_another_is():
    def work(device):
        tensor = torch.zeros(2, 3, device=device)
        made = [tensor.new_tensor([1, 2]), tensor.new([1, 2]), tensor.new_tensor([tensor[0, 0], 2]), tensor.new(2, 3)]
        return [(one.device, one.dtype, *one.shape) for one in made]

    assert seen(work) == [(CARD, torch.float32, 2)] * 3 + [(CARD, torch.float32, 2, 3)]


def test_a_sparse_tensor_is_made_from_numbers():
    def work(device):
        with torch.sparse.check_sparse_tensor_invariants(False):
            sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), device=device)
            on_the_host = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0])
        return sparse.device, sparse.shape, on_the_host.to_dense().tolist()

    assert seen(work) == (CARD, (4,), [1, 0, 2])


def test_classes_of_the_card_make_tensors_there_and_tell_them_apart():
    def work(device):
        floats, integers = torch.cuda.FloatTensor(2, 3), torch.cuda.LongTensor([1, 2])
        halves = torch.cuda.HalfTensor(np.ones((4, 1)))
        assert torch.cuda.IntTensor(floats.shape).shape == floats.shape
        assert torch.cuda.FloatTensor().shape == (0,)
        assert isinstance(floats, torch.cuda.FloatTensor)
        assert isinstance(torch.ones(2).cuda(), torch.cuda.FloatTensor)
        assert not any(isinstance(other, torch.cuda.FloatTensor) for other in (halves, torch.ones(2), 1.0))
        named = floats.type(), torch.ones(2).type(), torch.ones(2).type(integers.type()).dtype
        return [(one.device, one.dtype, *one.shape) for one in (floats, integers, halves)], named

    made, named = seen(work)
    assert made == [(CARD, torch.float32, 2, 3), (CARD, torch.int64, 2), (CARD, torch.float16, 4, 1)]
    assert named == ("torch.cuda.FloatTensor", "torch.FloatTensor", torch.int64)


INDICES = [
    [0, 2],
    (slice(None), [-1, 0]),
    (..., [1]),
    ((0, 2),),
    ([0, 1, 2], [3, 0, 1]),
    (None, [0]),
    range(2),
    [True, False, True],
    (slice(None), np.arange(4) % 2 == 0),
    np.array([2, 2]),
]


@pytest.fixture
def _not_yet_lifted():
    """PyTorch's switch of this thread as it is in a new process."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(False)
    yield
    torch._C._set_only_lift_cpu_tensors(before)


@pytest.mark.usefixtures("_not_yet_lifted")
@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_a_tensor_is_indexed_by_what_is_no_tensor(index):
    def work(device):
        numbers = torch.arange(12, device=device).view(3, 4)
        found, changed = numbers[index], numbers.clone()
        changed[index] = 70
        changed[0, [1]] = torch.tensor(80)
        return found.device == device, found.tolist(), changed.tolist(), 5 in numbers[:, [1]]

    assert seen(work) == work(torch.device("cpu"))


@pytest.mark.usefixtures("_not_yet_lifted")
def test_what_indexes_is_copied_to_the_card():
    _, trace = in_a_prediction(lambda device: torch.zeros(4, 128, device=device)[[0, 2]].shape)
    assert trace.peak_allocated == 4 * 512 + 512 + 2 * 512  # a block for the index


@pytest.mark.usefixtures("_not_yet_lifted")
def test_a_switch_of_the_thread_is_put_back():
    switch = torch._C._only_lift_cpu_tensors
    assert seen(lambda device: switch()) is True
    assert switch() is False
