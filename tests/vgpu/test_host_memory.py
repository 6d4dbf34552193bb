"""The tensors that a loop makes on the host are counted while they live."""

import pytest
import torch

from memlab import measure, predict
from memlab.lab.words import prediction_summary
from memlab.units import GIB, MIB
from tests.vgpu.once import in_a_prediction


def peak(work):
    """Of a prediction that keeps what ``work`` returns until it is over."""

    def keep(device):
        kept.append(work(device))

    kept = []
    return in_a_prediction(keep)[1].host_peak


def test_weights_are_on_the_host_until_they_move():
    def work(device):
        torch.nn.Linear(1024, 1024, bias=False).to(device)
        torch.nn.Linear(1024, 1024, bias=False).to(device)

    assert peak(work) == 4 * MIB


@pytest.mark.parametrize(
    "make",
    [
        lambda device: torch.zeros(MIB, dtype=torch.uint8),  # real
        lambda device: torch.empty(MIB // 4),  # without numbers
        lambda device: torch.empty(MIB // 4, device="cpu", pin_memory=True),
        lambda device: torch.ones(MIB // 4, device=device).cpu(),
        lambda device: torch.ones(MIB // 4, device=device).to("cpu", torch.float16).float(),
        lambda device: torch.empty(MIB // 4).view(512, -1).t()[1:],
        lambda device: torch.empty(4, MIB // 16).unbind(),
    ],
)
def test_every_way_of_making_a_tensor_counts_its_storage_once(make):
    both = MIB // 2 if "float16" in make.__code__.co_names else 0  # live for a moment
    assert peak(make) == MIB + both
    assert peak(make) == MIB + both  # what another prediction has kept is not in it


def test_what_is_on_the_card_is_not_on_the_host():
    assert peak(lambda device: torch.ones(MIB, device=device).square()) == 0


def test_saved_tensors_that_are_offloaded_are_on_the_host():
    def train(device, *, offload=False):
        model = torch.nn.Sequential(*(torch.nn.Linear(512, 512, bias=False) for _ in range(4))).to(device)
        with torch.autograd.graph.save_on_cpu() if offload else torch.enable_grad():
            loss = model(torch.ones(512, 512, device=device)).square().mean()
        loss.backward()
        yield loss

    # The inputs of four layers and of the square, and the weights that three of the layers differentiate by.
    assert predict(train, offload=True).host_peak - predict(train).host_peak == 8 * MIB - 4 * MIB
    assert measure(train, device="cpu", steps=1).host_peak is None


def test_a_panel_speaks_of_it_where_it_is_much_or_more_than_the_weights_before_they_move():
    def train(device, *, kept=0, width=16):
        held = torch.empty(kept, dtype=torch.uint8)
        model = torch.nn.Linear(width, width, bias=False).to(device)
        while True:
            loss = model(torch.ones(1, width, device=device)).mean()
            loss.backward()
            yield loss
        del held

    weights = {"width": 16_384}  # 1 GiB
    plain, beside, alone, much = (
        prediction_summary(predict(train, **settings))
        for settings in (weights, weights | {"kept": GIB}, {"kept": GIB}, {"kept": 3 * GIB})
    )
    assert "host" not in plain
    assert "Tensors take up to 2.00 GiB of the host's memory" in beside
    assert "Tensors take up to 1.00 GiB of the host's memory" in alone
    assert "Tensors take up to 3.00 GiB of the host's memory" in much
