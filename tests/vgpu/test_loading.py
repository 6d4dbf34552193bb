"""``torch.load`` in a prediction."""

from functools import partial

import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.errors import WrongDevice
from memlab.trace import Category

MIB = 2**20
WEIGHTS = 4 * 512 * 512  # bytes of a layer, a MiB


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 512, bias=False), nn.Linear(512, 512, bias=False))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """After a step of AdamW."""
    model, path = network(), tmp_path_factory.mktemp("loading") / "checkpoint.pt"
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 512)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, path)
    return path


def resume(device, *, checkpoint, where="cpu", keep=True, mmap=False):
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    saved = torch.load(checkpoint, map_location=device if where == "card" else "cpu", mmap=mmap)
    assert saved["step"] == 1
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    if not keep:
        del saved
    while True:
        loss = model(torch.ones(4, 512, device=device)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def allocated(trace) -> int:
    """When the X-rayed step begins, without what the libraries take."""
    return sum(count for category, count in trace.start.items() if category is not Category.WORKSPACE)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(("where", "keep", "copies"), [("cpu", True, 0), ("card", False, 0), ("card", True, 2)])
def test_a_checkpoint_loaded_to_the_card_takes_its_bytes_until_it_is_let_go(checkpoint, where, keep, copies, mmap):
    trace = predict(partial(resume, checkpoint=checkpoint), where=where, keep=keep, mmap=mmap)
    weights, state = 2 * WEIGHTS, 4 * WEIGHTS  # the state that was loaded is the state that is used
    counts = 2 * 4 if where == "card" else 0  # an optimizer leaves its step counts where they were loaded to
    assert allocated(trace) - 4 == weights + state + copies * WEIGHTS + counts  # the loss has 4


def test_it_is_what_a_measurement_finds(checkpoint):
    train = partial(resume, checkpoint=checkpoint, where="card")
    predicted, measured = predict(train), measure(train, device="cpu")
    assert allocated(measured) == allocated(predicted)


def test_tied_weights_stay_tied(tmp_path):
    weight = torch.ones(512, 512)
    torch.save({"head": weight, "embedding": weight.T, "row": weight[3]}, tmp_path / "tied.pt")

    def train(device):
        saved = torch.load(tmp_path / "tied.pt", map_location=device)
        assert {tensor.device for tensor in saved.values()} == {device}
        assert len({tensor.untyped_storage()._cdata for tensor in saved.values()}) == 1
        assert saved["embedding"].stride() == (1, 512)
        yield None

    assert max(predict(train, steps=1).allocated) == WEIGHTS


def test_a_whole_module_goes_to_the_card(tmp_path):
    torch.save(network(), tmp_path / "module.pt")

    def train(device):
        model = torch.load(tmp_path / "module.pt", map_location=device, weights_only=False)
        yield model(torch.ones(4, 512, device=device)).sum()

    assert max(predict(train, steps=1).timeline[Category.PARAMETER]) == 2 * WEIGHTS


def test_places_may_be_a_dict_or_a_function(checkpoint):
    def train(device):
        for places in ({"cpu": device}, lambda storage, location: storage, None):
            saved = torch.load(checkpoint, map_location=places)
            expected = device.type if isinstance(places, dict) else "cpu"
            assert saved["model"]["0.weight"].device.type == expected
        yield None

    predict(train, steps=1)


@pytest.mark.parametrize("place", ["cuda", "cuda:0", torch.device("cuda")])
def test_cuda_by_name_is_the_card(checkpoint, place):
    def train(device):
        loaded = torch.load(checkpoint, map_location=place)
        assert loaded["model"]["0.weight"].device == device
        yield

    predict(train, steps=1)


def test_another_card_is_refused(checkpoint):
    def train(device):
        yield torch.load(checkpoint, map_location="cuda:1")

    with pytest.raises(WrongDevice, match=r"names the device 'cuda:1' at test_loading\.py"):
        predict(train)


def test_outside_of_a_prediction_it_is_as_before(checkpoint):
    predict(partial(resume, checkpoint=checkpoint))
    saved = torch.load(checkpoint)
    assert type(saved["model"]["0.weight"]) is torch.Tensor
    assert saved["optimizer"]["state"][0]["step"].item() == 1
