"""The cards: each is one entry, and what is not among them can be described."""

import pytest
import torch

from memlab import fit, predict
from memlab.errors import BadValue
from memlab.nets import GPT, ResNet
from memlab.units import GIB, MIB
from memlab.vgpu import CARDS, find_card
from memlab.vgpu.architectures import ARCHITECTURES, Architecture
from memlab.vgpu.cards import Card, Speed
from memlab.vgpu.convolutions.asking import UNKNOWN
from memlab.vgpu.cudnn.backend import CudnnError
from memlab.vgpu.cudnn.plans import device
from memlab.vgpu.lookup import card_like, known_card
from tests.standin.cards import described
from tests.vgpu.once import seen

SPEED = Speed(40e12, 40e12, 80e12, 80e12, 700e9, 32e9, 32e9, 1.25e9, 48 * MIB)


def a_card(sm, name="RTX 9990"):
    """One that does not exist."""
    return Card(name, f"NVIDIA GeForce {name}", 20 * GIB, 300 * MIB, sm, 50, 256, (2500, 10501), SPEED)


def train(device, *, network="GPT"):
    with torch.random.fork_rng():
        model = (GPT(depth=2, width=64, heads=2, context=64) if network == "GPT" else ResNet(width=8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    while True:
        if network == "GPT":
            tokens = torch.zeros(4, 64, dtype=torch.int64, device=device)
            loss = model(tokens, tokens)
        else:
            images, labels = torch.zeros(8, 3, 16, 16, device=device), torch.zeros(8, dtype=torch.int64, device=device)
            loss = model(images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


@pytest.mark.parametrize("network", ["GPT", "ResNet"])
@pytest.mark.parametrize("gpu", CARDS)
def test_a_small_network_fits_on_every_card(gpu, network):
    trace = predict(train, gpu=gpu, network=network)
    assert (trace.device, trace.oom) == (gpu, None)
    assert 0 < trace.peak_allocated <= trace.peak_reserved < 200 * MIB
    assert 0 < trace.likely_seconds < 1


def test_the_entries_are_of_cards_that_differ():
    cards = list(CARDS.values())
    assert len({card.driver_name for card in cards}) == len(cards)
    for card in cards:
        assert 0.1 * GIB < card.context < card.capacity / 10
        bandwidth = 2 * card.clocks[1] * 1e6 * card.width / 8
        assert card.speed.memory == pytest.approx(bandwidth, rel=0.05)


def test_every_architecture_has_a_card():
    assert {card.sm for card in CARDS.values()} == ARCHITECTURES.keys()


def test_one_entry_makes_a_card_known_everywhere(monkeypatch):
    card = a_card(86)
    monkeypatch.setitem(CARDS, card.name, card)
    trace = predict(train, gpu="rtx9990")
    assert trace.device == "RTX 9990"
    assert trace.peak_allocated == predict(train, gpu="RTX 3060").peak_allocated
    assert trace.likely_seconds
    assert predict(train, gpu=card.name, network="ResNet").notes == ()
    told = seen(lambda device: torch.cuda.get_device_properties(device), gpu=card.name)
    assert (told.multi_processor_count, told.L2_cache_size, told.total_memory) == (50, 48 * MIB, 20 * GIB)
    assert described(card.name) == "NVIDIA GeForce RTX 9990;21474836480;314572800;8;6;50;1536;100;99;48;256;2500;10501"
    assert card_like(card.driver_name, 86, 50, 20 * GIB) is card
    assert fit(train, gpu=card.name, network="GPT").best is not None


def test_a_compute_capability_that_nobody_knows_is_one_entry_too(monkeypatch):
    with pytest.raises(BadValue, match=r"sm_130 has no entry in memlab/vgpu/architectures.py, which knows sm_70,"):
        a_card(130)
    monkeypatch.setitem(ARCHITECTURES, 130, Architecture("Hypatia", 2048, 32, 228, 227))
    monkeypatch.setitem(CARDS, "X1", a_card(130, "X1"))
    for network in ("GPT", "ResNet"):
        trace = predict(train, gpu="X1", network=network)
        assert trace.oom is None
        assert (UNKNOWN.sentence in trace.notes) == (network == "ResNet")
    assert seen(lambda device: torch.cuda.get_device_capability(), gpu="X1") == (13, 0)


def test_cudnn_is_not_asked_about_what_memlab_does_not_know():
    with pytest.raises(CudnnError, match="no card of sm_130"):
        device(None, 130)


@pytest.mark.parametrize(
    ("text", "capacity", "processors", "nearest"),
    [
        ("24 GiB sm_86", 24 * GIB, 82, "RTX 3090"),
        ("12GiB sm86", 12 * GIB, 28, "RTX 3060"),
        ("10 GiB sm_86 68 SMs", 10 * GIB, 68, "A10"),
        (" 15.6 gib  SM_89 66 sms ", round(15.6 * GIB), 66, "RTX 4070 Ti SUPER"),
        ("141 GB sm_90", 141 * 10**9, 132, "H200"),
    ],
)
def test_a_card_can_be_described(text, capacity, processors, nearest):
    card = find_card(text)
    assert (card.capacity, card.processors, card.taken_from) == (capacity, processors, nearest)
    assert card.speed == CARDS[nearest].speed
    assert card.name == " ".join(text.split())
    assert find_card(card.name) == card
    trace = predict(train, gpu=text)
    assert trace.device == card.name
    assert f"is that of the {nearest}, the nearest of sm_{card.sm} that memlab knows" in trace.notes[-1]
    assert trace.peak_allocated == predict(train, gpu=nearest).peak_allocated


def test_a_described_card_runs_out_of_memory_where_it_ends():
    def too_much(device):
        yield torch.empty(6 * GIB, dtype=torch.uint8, device=device)[:1].sum()

    oom = predict(too_much, gpu="6 GiB sm_86").oom
    assert oom.limit == 6 * GIB - CARDS["RTX 3060"].context
    assert "total capacity of 6.00 GiB" in oom.message


def test_fit_says_what_a_description_left_open():
    found = fit(train, gpu="24 GiB sm_86", network=["GPT"])
    assert "'24 GiB sm_86' does not say of the card" in str(found)
    assert "does not say" not in str(fit(train, gpu="RTX 3090", network=["GPT"]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "24 GiB",
            "gpu '24 GiB' does not describe a card: give its memory as PyTorch prints it and compute",
        ),
        ("sm_86", "gpu 'sm_86' does not describe a card"),
        ("24 GiB sm_8.6", "does not describe a card"),
        ("24 GiB sm_86 0 SMs", "does not describe a card"),
        ("24 sm_86", "'24' has no unit: write '24 GiB'"),
        ("-3 GiB sm_86", "'-3 GiB' is not a number of bytes"),
        ("24 GiB sm_61", "'24 GiB sm_61' has a compute capability that memlab does not know: give one of sm_70, sm_75"),
        ("100 MiB sm_86", "'100 MiB sm_86' has less memory than CUDA's context takes of it"),
        ("3090 Ti", "'3090 Ti' is not a card that memlab knows: similar names are RTX 3090"),
        ("", "gpu '' is not a card"),
        (None, "gpu None is not a card"),
        ("p100", "gpu 'p100' has compute capability 6.0, for which PyTorch has kernels only in .* on Kaggle 'T4'"),
    ],
)
def test_what_means_no_card_is_one_sentence(text, words):
    with pytest.raises(BadValue, match=words) as refusal:
        find_card(text)
    assert str(refusal.value).count(". ") == 0
    assert len(str(refusal.value)) < 250
    assert known_card(text) is None


def test_of_cards_with_the_same_chip_the_name_decides():
    chip = (80, 108, CARDS["A100-40GB"].capacity)
    assert card_like("NVIDIA A100-PCIE-40GB", *chip) is CARDS["A100-PCIe-40GB"]
    assert card_like("GRID A100X-40C", *chip) is CARDS["A100-40GB"]
    assert card_like("half of one", 80, 108, CARDS["A100-40GB"].capacity // 2) is None
