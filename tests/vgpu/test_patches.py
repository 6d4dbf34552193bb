"""PyTorch is changed in predictions only, and for the threads that predict; the very same objects are back after."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo import trace_rules
from torch._subclasses import FakeTensor
from torch.utils.data import dataloader

from memlab import predict
from memlab.vgpu.internals import kinds_of_operators
from memlab.vgpu.patches import PATCHES
from tests.vgpu.once import seen

OF_CUDNN = vars(type(torch.backends.cudnn))
PLACES = (
    torch, torch._C, torch.distributed,
    torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.nvtx, torch.accelerator,
    torch.accelerator.memory, torch.random, torch.serialization, torch.utils, torch.backends.cudnn, torch.__future__,
    torch.amp, torch.autocast, torch.autograd, torch.jit, torch.optim.LBFGS, torch.Tensor, nn.Module, nn.Parameter,
    nn.parameter.UninitializedTensorMixin, FakeTensor, torch.UntypedStorage,
    dataloader._BaseDataLoaderIter, threading.Thread, ThreadPoolExecutor, trace_rules,
    torch.jit._builtins, torch.nn.parallel._functions, np, logging.getLogger("torch._subclasses.fake_tensor"),
    *kinds_of_operators,
    *(OF_CUDNN[name] for name in ("allow_tf32", "benchmark", "deterministic", "enabled")),
)  # fmt: skip


def everything():
    """Every attribute of the places of PyTorch that a prediction changes."""
    return {(place, name): value for place in PLACES for name, value in vars(place).items()}


def changed(before):
    """The attributes that are no longer the very same objects."""
    after = everything()
    return {
        name
        for place, name in before.keys() | after.keys()
        if before.get((place, name)) is not after.get((place, name))
    }


def train(device, *, failure=None):
    model = nn.Linear(4, 4).to(device)
    for _ in range(2):
        torch.cuda.synchronize()
        yield model(torch.ones(2, 4, device="cuda")).sum()
        if failure is not None:
            raise failure


@pytest.fixture(autouse=True, scope="module")
def loaded():
    """A first prediction loads modules of PyTorch."""
    predict(train)


def test_the_comparison_finds_a_change():
    before = everything()
    with PATCHES:
        found = changed(before)
    assert {
        "is_available",
        "memory_stats_as_nested_dict",
        "save",
        "load",
        "Stream",
        "Generator",
        "to",
    } <= found


def test_every_place_of_a_change_is_looked_at():
    owners = {owner for owner, _, _ in PATCHES._changes()}
    assert {place for place in owners if getattr(place, "__name__", "") != "safetensors.torch"} <= set(PLACES)


@pytest.mark.parametrize("failure", [None, ValueError("mine"), KeyboardInterrupt()])
def test_the_very_same_objects_are_back(failure):
    before = everything()
    if failure is None:
        predict(train)
    else:
        with pytest.raises(type(failure)):
            predict(train, failure=failure)
    assert changed(before) == set()


def test_they_are_back_after_out_of_memory():
    before = everything()
    assert predict(train, budget=1).oom is not None
    assert changed(before) == set()


def test_they_are_back_when_two_predictions_in_two_threads_have_ended():
    before = everything()
    both_inside = threading.Barrier(2)
    first_is_over, left = threading.Event(), []

    def waiting(device, *, last):
        both_inside.wait()
        if last:
            first_is_over.wait()
            left.append(torch.cuda.is_available())
        yield from train(device)

    threads = [threading.Thread(target=predict, args=(waiting,), kwargs={"last": last}) for last in (False, True)]
    for thread in threads:
        thread.start()
    threads[0].join()
    first_is_over.set()
    threads[1].join()
    assert left == [True]
    assert changed(before) == set()


def beside_a_prediction(work):
    """Return the result of ``work()`` in this thread while another is in the middle of a prediction."""
    inside, over = threading.Event(), threading.Event()

    def waiting(device):
        inside.set()
        over.wait()
        yield torch.ones(2, device=device).sum()

    thread = threading.Thread(target=predict, args=(waiting,))
    thread.start()
    inside.wait()
    try:
        return work()
    finally:
        over.set()
        thread.join()


def test_another_thread_has_no_card():
    def asked():
        return torch.cuda.is_available(), torch.cuda.device_count(), torch.accelerator.is_available()

    assert beside_a_prediction(asked) == asked()


def test_another_thread_saves_and_loads_for_real(tmp_path):
    def saved():
        torch.save({"x": torch.ones(3)}, tmp_path / "x.pt")
        return torch.load(tmp_path / "x.pt")["x"].tolist()

    assert beside_a_prediction(saved) == [1, 1, 1]
    assert (tmp_path / "x.pt").stat().st_size > 0


def test_another_thread_has_real_arrays(tmp_path):
    def written():
        torch.arange(3).numpy().tofile(tmp_path / "x.bin")
        return type(torch.ones(2).numpy()).__name__, (tmp_path / "x.bin").stat().st_size

    assert beside_a_prediction(written) == ("ndarray", 24)


def test_another_thread_moves_modules_as_before():
    def moved():
        module = nn.Linear(2, 2)
        weight = module.weight
        module.to(torch.float64)
        return module.weight is weight, torch.__future__.get_swap_module_params_on_conversion()

    assert beside_a_prediction(moved) == (True, False)


def test_another_thread_compiles():
    double = lambda x: x * 2  # noqa: E731
    assert beside_a_prediction(lambda: torch.compile(double, backend="eager")(torch.ones(1)).item()) == 2


def test_another_thread_makes_real_generators_that_count_as_generators():
    def made():
        generator = torch.Generator()
        return type(generator).__module__, isinstance(generator, torch.Generator)

    assert beside_a_prediction(made) == ("torch._C", True)


def test_what_was_made_before_counts_as_a_generator_inside():
    generator = torch.Generator()
    assert seen(lambda device: isinstance(generator, torch.Generator))


def test_another_thread_loads_data():
    assert beside_a_prediction(lambda: next(iter(dataloader.DataLoader([1, 2], batch_size=2))).tolist()) == [1, 2]


def test_optimizers_take_foreach_in_predictions_only():
    def groups(device):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, device=device))], 0.1)
        return torch.utils._foreach_utils._foreach_supported_types.count(FakeTensor), optimizer.defaults["foreach"]

    assert seen(groups)[0] == 1
    assert torch.utils._foreach_utils._foreach_supported_types.count(FakeTensor) == 0


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.11 says so of every profile
@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping_takes_foreach_where_cuda_does(foreach):
    def norms(device):
        model = nn.Linear(4, 4).to(device)
        model(torch.ones(2, 4, device=device)).sum().backward()
        with torch.profiler.profile() as profiled:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=foreach)
        return {event.name for event in profiled.events()}

    assert ("aten::_foreach_norm" in seen(norms)) is (foreach is not False)
