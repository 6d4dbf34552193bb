"""``torch.save`` and ``torch.load`` in a prediction: it reads what was there, and writes nothing."""

import io
import sys
import weakref
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.errors import WrongDevice
from memlab.trace import Category
from tests.vgpu.once import in_a_prediction, seen

MIB = 2**20
WEIGHTS = 4 * 512 * 512  # bytes of a layer, a MiB


CARD = torch.device("cuda", 0)


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

    with pytest.raises(WrongDevice, match=r"names the device 'cuda:1' at test_serialization\.py"):
        predict(train)


def test_outside_of_a_prediction_it_is_as_before(checkpoint):
    predict(partial(resume, checkpoint=checkpoint))
    saved = torch.load(checkpoint)
    assert type(saved["model"]["0.weight"]) is torch.Tensor
    assert saved["optimizer"]["state"][0]["step"].item() == 1


# Saving


def saved_and_loaded(thing, **options):
    """Return a function of a device that makes ``thing(device)``, saves it and loads it again."""

    def work(device):
        file = io.BytesIO()
        torch.save(thing(device), file)
        return torch.load(file, **options)

    return work


def test_a_checkpoint_that_was_there_is_untouched(checkpoint):
    before = checkpoint.read_bytes()
    seen(lambda device: torch.save(network().to(device).state_dict(), checkpoint))
    assert checkpoint.read_bytes() == before


def test_numbers_of_the_host_are_not_written_either(checkpoint):
    before = checkpoint.read_bytes()
    seen(lambda device: torch.save({"step": torch.tensor(3), "lr": 0.1}, str(checkpoint)))
    assert checkpoint.read_bytes() == before


def test_no_file_is_made(tmp_path):
    def work(device):
        model = network().to(device)
        torch.save(model.state_dict(), tmp_path / "model.pt")
        torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, tmp_path / "host.pt")
        torch.serialization.save(model, tmp_path / "module.pt", _use_new_zipfile_serialization=False)

    seen(work)
    assert list(tmp_path.iterdir()) == []


def test_a_file_object_stays_as_it_was(tmp_path):
    memory = io.BytesIO(b"mine")
    with open(tmp_path / "file.pt", "w+b") as file:
        seen(lambda device: torch.save(network().to(device), file) or torch.save(network(), memory))
        assert file.tell() == 0
    assert memory.getvalue() == b"mine"


def test_it_is_said_once_for_each_line(tmp_path):
    def train(device):
        for _ in range(3):
            torch.save(torch.ones(3, device=device), tmp_path / "x.pt")
            yield

    line = train.__code__.co_firstlineno + 2
    notes = predict(train).notes
    assert notes == (f"torch.save at test_serialization.py:{line} wrote nothing: a prediction writes no files.",)


def test_what_was_saved_is_loaded_to_the_card_again(tmp_path):
    def work(device):
        torch.save(network().to(device).state_dict(), tmp_path / "x.pt")
        loaded = torch.load(str(tmp_path / "x.pt"))
        model = network().to(device)
        model.load_state_dict(loaded)
        return [tensor.device for tensor in loaded.values()], torch.cuda.memory_allocated()

    devices, held = seen(work)
    assert devices == [CARD] * 2
    assert held == 4 * WEIGHTS


def test_what_was_saved_to_an_open_file_is_found_by_its_path(tmp_path):
    def train(device):
        with open(tmp_path / "new.pt", "wb") as file:
            torch.save({"weight": torch.ones(256, 256, device=device)}, file)
        yield
        weight = torch.load(tmp_path / "new.pt", map_location=device)["weight"]
        yield
        assert weight.device.type == "cuda"

    assert predict(train, steps=2).steps[1].peak_allocated == 4 * 256 * 256


def test_an_open_file_is_not_kept_alive():
    class Written(io.RawIOBase):
        def write(self, data):
            return len(data)

    def save(device):
        file = Written()
        torch.save(torch.ones(4, device=device), file)
        written = weakref.ref(file)
        del file
        return written()

    assert seen(save) is None


def test_what_was_saved_is_found_in_another_folder_by_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def work(device):
        torch.save(torch.tensor(5), "x.pt")
        return torch.load(tmp_path / "x.pt").item()

    assert seen(work) == 5


def test_the_file_that_was_there_is_read_until_the_loop_saves(checkpoint):
    def work(device):
        before = torch.load(checkpoint)["step"]
        torch.save({"step": 2}, checkpoint)
        return before, torch.load(checkpoint)["step"]

    assert seen(work) == (1, 2)
    assert torch.load(checkpoint)["step"] == 1


def test_the_next_prediction_finds_no_saved_file(tmp_path):
    def work(device):
        found = (tmp_path / "x.pt").exists()
        torch.save(1, tmp_path / "x.pt")
        return found

    assert [seen(work), seen(work)] == [False, False]


@pytest.mark.parametrize("where", ["cpu", "cuda", torch.device("cpu"), {"cuda:0": "cpu"}, None], ids=str)
def test_what_was_saved_comes_back_where_it_is_wanted(where):
    loaded = seen(
        lambda device: saved_and_loaded(lambda d: torch.ones(4000, device=d), map_location=where)(device).device
    )
    assert loaded.type == ("cuda" if where in ("cuda", None) else "cpu")


def test_numbers_that_are_known_come_back():
    def thing(device):
        return {"step": torch.tensor(3, device=device), "host": torch.arange(4.0), "lr": 0.1, "names": ["a", ("b",)]}

    def work(device):
        loaded = saved_and_loaded(thing)(device)
        return loaded["step"].item(), loaded["host"].tolist(), loaded["lr"], loaded["names"]

    assert seen(work) == (3, [0, 1, 2, 3], 0.1, ["a", ("b",)])


def test_what_is_written_after_saving_does_not_change_what_was_saved():
    def work(device):
        file, count, host = io.BytesIO(), torch.tensor(3, device=device), torch.ones(2)
        torch.save((count, host), file)
        count += 1
        host += 1
        loaded = torch.load(file)
        return loaded[0].item(), loaded[1].tolist()

    assert seen(work) == (3, [1, 1])


@pytest.mark.parametrize("at", ["host", "card"])
def test_tied_weights_stay_tied_in_what_was_saved(at):
    def thing(device):
        weight = torch.randn(512, 512, device=device if at == "card" else "cpu")
        return {"head": weight, "embedding": weight.T, "row": weight[3]}

    def work(device):
        loaded = saved_and_loaded(thing)(device)
        shared = {tensor.untyped_storage()._cdata for tensor in loaded.values()}
        return len(shared), loaded["embedding"].stride(), loaded["row"].storage_offset()

    assert seen(work) == (1, (1, 512), 3 * 512)


def test_parameters_come_back_as_parameters():
    def thing(device):
        return [nn.Parameter(torch.ones(3, device=device)), nn.Parameter(torch.ones(3), requires_grad=False)]

    def work(device):
        return [(isinstance(p, nn.Parameter), p.requires_grad, p.device) for p in saved_and_loaded(thing)(device)]

    assert seen(work) == [(True, True, CARD), (True, False, torch.device("cpu"))]


def test_an_optimizer_resumes_from_what_was_saved():
    def work(device):
        file, model = io.BytesIO(), network().to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(4, 512, device=device)).sum().backward()
        optimizer.step()
        torch.save(optimizer.state_dict(), file)
        resumed = torch.optim.AdamW(model.parameters())
        resumed.load_state_dict(torch.load(file, map_location=device))
        resumed.step()
        state = resumed.state[model[0].weight]
        return state["step"].item(), state["exp_avg"].device, resumed.param_groups[0]["lr"]

    assert seen(work) == (2, CARD, 0.001)


def test_a_module_that_was_saved_whole_runs_again():
    def work(device):
        model = saved_and_loaded(lambda d: network().to(d), weights_only=False)(device)
        return model(torch.ones(4, 512, device=device)).shape, model[0].weight.device

    assert seen(work) == ((4, 512), CARD)


def test_a_module_that_was_saved_whole_is_another_module():
    def work(device):
        model, file = network().to(device), io.BytesIO()
        torch.save(model, file)
        loaded = torch.load(file, weights_only=False)
        return loaded is model, loaded[0].weight is model[0].weight, torch.cuda.memory_allocated()

    assert seen(work) == (False, False, 4 * WEIGHTS)


def test_saving_takes_no_memory_of_the_card():
    def work(device):
        model = network().to(device)
        torch.save(model.state_dict(), io.BytesIO())
        return torch.cuda.memory_allocated()

    held, trace = in_a_prediction(work)
    assert held == trace.peak_allocated == 2 * WEIGHTS


# Other doors


@pytest.mark.parametrize(
    "write",
    [
        lambda array, path: array.tofile(path),
        lambda array, path: array.dump(path),
        lambda array, path: np.save(path, array),
        lambda array, path: np.savez(path, array),
        lambda array, path: np.savez(path, x=array),
        lambda array, path: np.savez_compressed(path, array),
        lambda array, path: np.savetxt(path, array),
    ],
    ids=["tofile", "dump", "save", "savez", "savez by name", "savez_compressed", "savetxt"],
)
@pytest.mark.parametrize("made", ["from the card", "on the host", "worked out"])
def test_arrays_are_not_written(tmp_path, write, made):
    def array(device):
        x = torch.arange(6.0, device=device if made == "from the card" else "cpu").cpu().numpy()
        return x + 1 if made == "worked out" else x

    path = tmp_path / "array.bin"
    path.write_bytes(b"mine")
    _, trace = in_a_prediction(lambda device: write(array(device), path))
    assert path.read_bytes() == b"mine"
    assert [file.name for file in tmp_path.iterdir()] == ["array.bin"]
    assert len(trace.notes) == 1
    assert "wrote nothing" in trace.notes[0]


def test_arrays_are_written_again_after_a_prediction(tmp_path):
    kept = seen(lambda device: torch.arange(6.0).numpy())
    kept.tofile(tmp_path / "array.bin")
    assert (tmp_path / "array.bin").stat().st_size == 24


def test_safetensors_are_not_written(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    safetensors.save_file({"x": torch.ones(3)}, path)
    before = path.read_bytes()

    def work(device):
        safetensors.save_file({"x": torch.zeros(3, device=device)}, path)
        safetensors.save_file({"x": torch.zeros(3)}, tmp_path / "new.safetensors")
        safetensors.save_model(network().to(device), tmp_path / "new.safetensors")

    _, trace = in_a_prediction(work)
    assert path.read_bytes() == before
    assert not (tmp_path / "new.safetensors").exists()
    assert all("wrote nothing" in note for note in trace.notes)
    safetensors.save_file({"x": torch.zeros(3)}, path)
    assert safetensors.load_file(path)["x"].tolist() == [0, 0, 0]


def test_safetensors_that_the_loop_imports_are_not_written(tmp_path, monkeypatch):
    module = pytest.importorskip("safetensors.torch")
    monkeypatch.setattr(sys.modules["safetensors"], "torch", module)  # as it shall be afterwards: the import sets it
    monkeypatch.delitem(sys.modules, "safetensors.torch")

    def work(device):
        from safetensors.torch import save_file

        save_file({"x": torch.zeros(3)}, tmp_path / "new.safetensors")

    seen(work)
    assert not (tmp_path / "new.safetensors").exists()


def test_safetensors_are_read(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"x": torch.arange(3)}, tmp_path / "x.safetensors")

    def work(device):
        host = safetensors.load_file(tmp_path / "x.safetensors")["x"]
        card = safetensors.load_file(tmp_path / "x.safetensors", device="cuda")["x"]
        return host.tolist(), card.device

    assert seen(work) == ([0, 1, 2], CARD)


def test_loading_a_state_leaves_the_gradients():
    def kept(device):
        model = nn.Linear(4, 4).to(device)
        weight = model.weight
        model(torch.ones(2, 4, device=device)).sum().backward()
        model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
        return model.weight is weight, weight.grad.shape

    assert seen(kept) == (True, (4, 4))
