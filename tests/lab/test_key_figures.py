"""A prediction beside a count, in bytes: recorded where there is no GPU, measured where there is one."""

from types import SimpleNamespace

import pytest
import torch

from memlab import measure, predict
from memlab.lab import key_figure, key_figures, recorded
from memlab.vgpu.cards import CARDS
from memlab.vgpu.lookup import card_like
from tests.cuda.key_figures import asked
from tests.notebooks.cells import NOTEBOOKS

pytestmark = pytest.mark.slow


def train(device, *, width=8):
    model = torch.nn.Linear(width, width).to(device)
    while True:
        loss = model(torch.ones(1, width, device=device)).sum()
        loss.backward()
        yield loss


def written(shown):
    return {name: int(count.replace(",", "")) for name, count, _ in shown.rows}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # which torch.compile and torch.distributed have
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_prediction_of_a_notebook_is_what_pytorch_counts_on_the_stand_in(notebook):
    if (found := asked(notebook)) is None:
        pytest.skip("this notebook has no key figure yet")
    number, loop, settings = found
    counted = recorded.figures(key_figures.RECORD)["figures"][number]
    assert predict(loop, gpu="T4", **settings).peak_allocated == counted


def test_without_a_gpu_the_count_is_a_recorded_one_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMLAB_SIZE", "cpu")
    (tmp_path / key_figures.RECORD).write_text('{"torch": "2.13.0", "figures": {"99": 1000}}')
    monkeypatch.setattr(recorded, "folder", lambda: tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shown = key_figure("99", train, width=16)
    predicted = predict(train, width=16).peak_allocated
    assert list(written(shown).values()) == [predicted, 1000, predicted - 1000]
    assert "no real GPU" in shown.rows[1][0]
    monkeypatch.setenv("MEMLAB_SIZE", "ci")
    assert list(written(key_figure("99", train, width=16)).values()) == [1000]


def test_on_a_gpu_the_loop_runs_there(monkeypatch):
    t4 = CARDS["T4"]
    card = SimpleNamespace(name="Tesla T4", major=7, minor=5, multi_processor_count=40, total_memory=t4.capacity)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(key_figures, "measure", lambda train, device, **settings: predict(train, **settings))
    shown = key_figure("99", train)
    assert [name for name, *_ in shown.rows] == [
        "predicted for the T4, just now",
        "measured on this Tesla T4, just now",
        "difference",
    ]
    assert written(shown)["difference"] == 0
    card.multi_processor_count = 41  # a card that memlab does not know
    assert len(key_figure("99", train).rows) == 1


def test_a_card_is_known_by_what_cuda_tells_of_it():
    for card in CARDS.values():
        assert card_like(card.driver_name, card.sm, card.processors, card.capacity + 2**20) == card
    assert card_like("NVIDIA A100-SXM4-40GB", 80, 108, CARDS["A100-40GB"].capacity // 2) is None


def test_ddp_is_answered_by_ranks_that_are_not_there(monkeypatch):
    def with_ddp(device):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
        while True:
            loss = model(torch.ones(1, 64, device=device)).sum()
            loss.backward()
            yield loss

    monkeypatch.setattr(key_figures, "measure", lambda train, device: measure(train, device="cpu"))
    run = key_figures.count(with_ddp, world_size=2)
    assert run.start["communication"] == 4 * 65 * 64
    assert None not in run.losses
