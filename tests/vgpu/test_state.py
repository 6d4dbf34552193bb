"""A prediction leaves PyTorch as it was, also after an exception or an interrupt, and real training unaffected."""

import threading

import pytest
import torch
from torch import nn
from torch.nn.modules import module
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from memlab import measure, predict
from memlab.errors import Stopped
from memlab.nets import MLP
from memlab.vgpu import find_card
from memlab.vgpu.current_prediction import Prediction
from memlab.vgpu.internals import FAKE_MODE, unset_mode
from memlab.vgpu.memory import VirtualMemory
from memlab.vgpu.mode import VirtualMode


def state():
    """All that a prediction could leave behind in PyTorch."""
    return {
        "accelerator": torch.accelerator.current_accelerator(),
        "available": torch.accelerator.is_available(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
        "device": torch.get_default_device(),
        "dtype": torch.get_default_dtype(),
        "foreach": torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1).defaults["foreach"],
        "gradients": torch.is_grad_enabled(),
        "hooks": (len(module._global_forward_pre_hooks), len(module._global_forward_hooks)),
        "modes": list(_get_current_dispatch_mode_stack()),
        "random": torch.get_rng_state().tolist(),
        "swap": torch.__future__.get_swap_module_params_on_conversion(),
        "threads": threading.active_count(),
    }


def train(device, *, failure=None):
    model = MLP(2, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast(device.type, torch.bfloat16):
        for step in range(3):
            loss = model(torch.rand(8, 64, device=device)).mean()
            if failure is not None and step == 1:
                raise failure
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss


def test_what_is_broken_off_while_pytorch_has_set_the_mode_aside_ends_as_it_was_ended():
    prediction = Prediction(find_card("T4"), VirtualMemory(find_card("T4")))
    before = state()

    def broken_off():
        with VirtualMode(prediction):
            unset_mode(FAKE_MODE)  # and Stop, or Ctrl-C, comes before it is put back
            raise Stopped

    with pytest.raises(Stopped):
        broken_off()
    assert state() == before


@pytest.fixture(autouse=True, scope="module")
def registered():
    """The device is registered once in a process; that is not what is tested here."""
    predict(train)


@pytest.mark.parametrize("failure", [None, ValueError("mine"), KeyboardInterrupt()])
def test_the_state_is_as_before(failure):
    before = state()
    if failure is None:
        predict(train)
    else:
        with pytest.raises(type(failure)):
            predict(train, failure=failure)
    assert state() == before


def test_out_of_memory_leaves_nothing_behind():
    before = state()
    assert predict(train, budget="1 MiB").oom is not None
    assert state() == before


def test_real_training_is_unaffected():
    def losses():
        return measure(train, device="cpu").losses

    before = losses()
    predict(train)
    assert losses() == before
    model = nn.Linear(4, 4)
    weight = model.weight
    assert model.to(torch.float64).weight is weight  # as without memlab
    assert type(weight) is nn.Parameter
    with torch.autocast("cpu", torch.bfloat16):
        assert model.float()(torch.ones(2, 4)).dtype is torch.bfloat16
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2


def test_a_prediction_beside_real_training_in_another_thread():
    alone, predicted = measure(train_on_ones, device="cpu"), predict(train)
    stop, results = threading.Event(), []

    def predict_elsewhere():
        while not stop.is_set():
            results.append(predict(train))

    thread = threading.Thread(target=predict_elsewhere)
    thread.start()
    try:
        beside = measure(train_on_ones, device="cpu", steps=20)
    finally:
        stop.set()
        thread.join()
    assert beside.losses[:3] == alone.losses
    assert beside.allocated == alone.allocated
    assert results
    assert all(result.allocated == predicted.allocated for result in results)


def train_on_ones(device):
    model = MLP(4, 64).to(device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        loss = model(torch.ones(64, 64, device=device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def test_the_private_slot_keeps_its_name_so_that_cuda_stays_the_accelerator():
    # A renamed slot becomes the process's accelerator, and backward on a real card fails (pytorch/pytorch#161129).
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    assert torch.accelerator.current_accelerator() != torch.device("privateuseone")


def test_nothing_is_made_on_a_card_that_is_there(monkeypatch):
    # PyTorch's own mode would copy a constant to the card for real, where there is one.
    card = find_card("T4")
    mode = VirtualMode(Prediction(card, VirtualMemory(card)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert mode.avoid_device_init
