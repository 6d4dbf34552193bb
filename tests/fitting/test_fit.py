"""The settings that fit: the same as by trying them all, with a fraction of the predictions."""

from itertools import product

import pytest
import torch
from torch.nn import functional as F

import memlab
from memlab import fit, max_batch, predict
from memlab.errors import BadTrain, BadValue
from memlab.fitting import finding
from memlab.nets.checkpointing import run_layers

MIB = 2**20


def train(device, *, batch_size=8, precision="fp32", checkpoint_every=0, unused=0, width=256, micro_batches=1):
    """Six layers, small enough for hundreds of predictions."""
    layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(6))
    layers.to(device)
    optimizer = torch.optim.AdamW(layers.parameters())
    while True:
        for _ in range(micro_batches):
            with torch.autocast(device.type, torch.float16, enabled=precision == "amp"):
                numbers = torch.zeros(1024 * batch_size // micro_batches, width, device=device)
                loss = F.mse_loss(run_layers(layers, numbers, checkpoint_every), numbers)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


CHOICES = {"batch_size": (1, 16), "precision": ["fp32", "amp"], "checkpoint_every": [0, 2]}


def best_of_all(budget, *, gpu="T4", **choices):
    """The fastest setting that fits, by trying each."""
    fitting = []
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        trace = predict(train, gpu=gpu, budget=budget, **settings)
        if not trace.oom:
            fitting.append((trace.likely_seconds / settings["batch_size"], trace.peak_reserved, settings))
    return min(fitting, key=lambda found: found[:2])[2]


def test_what_fits_best_is_what_trying_all_finds():
    found = fit(train, budget="120 MiB", **CHOICES)
    every = CHOICES | {"batch_size": range(1, 17)}
    assert found.best.settings == best_of_all("120 MiB", **every)
    assert found.combinations == 64
    assert found.tried <= 64 / 3


def test_each_row_is_the_most_that_fits():
    found = fit(train, budget="300 MiB", precision=["fp32", "amp"], batch_size=(1, 16))
    for row in found.rows:
        assert row.trace.oom is None
        more = row.settings["batch_size"] + 1
        settings = row.settings | {"batch_size": more}
        assert more > 16 or predict(train, budget="300 MiB", **settings).oom
    assert [row.seconds for row in found.rows] == sorted(row.seconds for row in found.rows)


def test_it_says_what_was_given_up_and_by_how_much_it_fits():
    found = fit(train, budget="120 MiB", **CHOICES)
    given, size = found.best.settings, found.best.settings["batch_size"]
    assert given["precision"] == "amp"
    assert size < 16
    assert found.sentence.startswith(f"fits: precision='amp', checkpoint_every=0, batch_size={size} (asked for: ")
    assert "precision 'fp32', batch_size up to 16" in found.sentence
    assert " of 120 MiB on T4, " in found.sentence
    assert " to spare, probably " in found.sentence
    assert str(found).splitlines()[-1] == f"{found.tried} predictions for 64 combinations."


def test_what_is_wished_may_fit():
    found = fit(train, batch_size=(1, 4))
    assert found.best.settings == {"batch_size": 4}
    assert found.tried == 2
    assert "batch_size=4, as asked for: " in found.sentence


def test_nothing_fits_and_why():
    found = fit(train, budget="20 MiB", **CHOICES)
    assert (found.rows, found.best) == ((), None)
    assert found.nearest.settings["batch_size"] == 1
    assert found.sentence.startswith("nothing fits; the nearest, ")
    assert f", needs {memlab.format_bytes(found.nearest.needed)}, " in found.sentence
    assert found.tried <= 64 / 3


def test_nothing_fits_where_the_residents_alone_are_too_much():
    found = fit(train, budget="2 MiB", batch_size=(1, 16))
    assert ": parameters, gradients and optimizer state alone are " in found.sentence


def test_a_choice_that_changes_nothing_is_named():
    found = fit(train, unused=[0, 1], precision=["fp32", "amp"])
    assert found.notes == ("unused changes neither memory nor time.",)
    assert {row.settings["unused"] for row in found.rows} == {0}
    assert fit(train, unused=(0, 9)).notes == ("unused changes neither memory nor time.",)


def refusing(device, *, batch_size=8, heads=4):
    if 8 % heads:
        raise ValueError(f"8 is not divisible by {heads} heads")
    yield torch.zeros(MIB, batch_size, device=device).sum()


def test_what_the_loop_refuses_is_kept_with_its_words():
    found = fit(refusing, heads=[2, 3], batch_size=[1, 2])
    assert {row.settings["heads"] for row in found.rows} == {2}
    assert [refused.settings["heads"] for refused in found.refused] == [3, 3]
    assert found.refused[0].words == "ValueError: 8 is not divisible by 3 heads"
    assert "Not possible: heads=3, batch_size=1: ValueError: 8 is not" in str(found)
    only = fit(refusing, heads=[3, 5])
    assert only.sentence == "the loop takes none of the settings: ValueError: 8 is not divisible by 3 heads"


def test_a_range_of_which_the_loop_refuses_some_is_tried_whole():
    found = fit(refusing, heads=(3, 8), batch_size=2)
    assert found.tried == 6
    assert {refused.settings["heads"] for refused in found.refused} == {3, 5, 6, 7}
    assert found.best.settings["heads"] in (4, 8)


def uneven(device, *, size=1):
    yield torch.zeros(4 * MIB * (1 if size == 4 else size), device=device).sum()


def test_a_range_along_which_memory_does_not_grow_is_tried_whole():
    assert fit(uneven, size=(5, 11), budget="132 MiB").tried == 4
    assert fit(uneven, size=(2, 8), budget="72 MiB").tried == 7


def test_memory_may_fall_along_a_range():
    found = fit(train, budget="100 MiB", micro_batches=[1, 2, 4, 8, 16], batch_size=16)
    assert found.tried < 5
    most = found.best.settings["micro_batches"]
    assert 1 < most < 16
    assert predict(train, budget="100 MiB", batch_size=16, micro_batches=most // 2).oom


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"precision": []}, "precision=[] has no value to choose"),
        ({"batch_size": (8, 1)}, "batch_size=(8, 1) is no range"),
        ({"batch_size": (1, 2, 3)}, "batch_size=(1, 2, 3) is no range"),
        ({"batch_size": (1, 8), "gpu": "K80"}, "gpu 'K80' is not a card"),
        ({"size": (1, 8)}, "train has no setting 'size'"),
        ({"budget": "lots"}, "'lots' is not a number of bytes"),
        ({"steps": 0}, "steps=0 is not a number of steps"),
    ],
)
def test_bad_input_is_one_sentence(choices, words):
    with pytest.raises(BadValue) as caught:
        fit(train, **choices)
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith(".")


def test_what_is_no_loop_is_refused():
    with pytest.raises(BadTrain):
        fit(lambda device: 3)


def test_progress_is_told_and_an_interrupt_keeps_what_was_found():
    told = []

    def stop_after_four(line):
        told.append(line)
        if len(told) == 4:
            raise KeyboardInterrupt

    found = fit(train, progress=stop_after_four, **CHOICES)
    assert found.stopped
    assert found.tried == 4
    assert found.rows
    assert told[0].startswith("1: precision='fp32', checkpoint_every=0, batch_size=1: ")
    assert str(found).endswith("4 predictions for 64 combinations, interrupted.")


def test_the_largest_batch():
    most = max_batch(train, budget="300 MiB")
    assert not predict(train, budget="300 MiB", batch_size=most).oom
    assert predict(train, budget="300 MiB", batch_size=most + 1).oom
    assert max_batch(train, budget="2 MiB") == 0


def picky(device, *, batch_size=8):
    """Trains on the positive numbers alone: how many there are, only a real card knows."""
    weight = torch.nn.Parameter(torch.zeros(256, device=device))
    while True:
        numbers = torch.zeros(1024 * batch_size, 256, device=device) + weight
        loss = numbers[numbers > 0].square().sum()
        loss.backward()
        yield loss


def test_the_share_that_is_chosen_decides_what_fits():
    tenth, all_of_it = (max_batch(picky, budget="300 MiB", chosen=share) for share in (0.1, 1.0))
    assert tenth > 1.5 * all_of_it
    assert not predict(picky, budget="300 MiB", chosen=0.1, batch_size=tenth).oom
    assert predict(picky, budget="300 MiB", chosen=1.0, batch_size=tenth).oom
    with pytest.raises(BadValue, match="chosen=3"):
        fit(picky, chosen=3)


def test_the_best_is_measured_where_the_card_is_here(monkeypatch):
    def measure(loop, *, device, **settings):
        return memlab.measure(loop, device="cpu", **settings | {"budget": None, "steps": 1})

    monkeypatch.setattr(finding, "measure", measure)
    monkeypatch.setattr(finding._Search, "_is_here", lambda self: True)
    assert fit(train, batch_size=[1]).measured.settings["batch_size"] == 1
    monkeypatch.undo()
    assert fit(train, batch_size=[1]).measured is None
