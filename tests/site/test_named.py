"""The values that a text names are found, and nothing that is no value of a control."""

import pytest

from memlab import Lab
from memlab.lab.checks import OWN_MODEL
from memlab.lab.page.grid import MODEL
from tests.lab.loops import train
from tests.site.named import named, runs


def loop(device, *, batch_size=8, checkpoint_every=0, precision="fp32", world=1, share=0.5):
    yield from train(device, batch_size=batch_size)


@pytest.fixture(scope="module")
def session():
    lab = Lab(
        loop,
        models={"GPT-2 small": {"world": 2}, "GPT-2 medium": {"world": 3}},
        batch_size=(1, 64),
        checkpoint_every=(0, 12),
        precision=["fp32", "bf16"],
        share=(0.0, 1.0),
        world_size=(1, 1024),
    )
    return lab.session


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Set *checkpoint every* to 1. And now? Then 2, 6 and 12.", [("checkpoint_every", n) for n in (1, 2, 6, 12)]),
        ("A batch of one, of twenty, of 24, of 65: each of GPT-2.", [("batch_size", 1), ("batch_size", 24)]),
        ("1. Which one fits? Raise the batch.", []),
        (
            "From 1 rank to 1,024, at a `batch_size` of 20.",
            [("world_size", 1), ("world_size", 1024), ("batch_size", 20)],
        ),
        ("World size 3, world size 64.", [("world_size", 64)]),
        ("Two ranks: two, then four.", [("world_size", 2), ("world_size", 4)]),
        ("Share 0.25, then 1.", [("share", 0.25), ("share", 1.0)]),
        ("In `bf16`, with `bf16x`.", [("precision", "bf16")]),
        ("Both precisions.", [("precision", "fp32"), ("precision", "bf16")]),
        ("A T4, an A100, and an RTX 3060.", [("gpu", "A100-40GB"), ("gpu", "T4"), ("gpu", "RTX 3060")]),
        ("Choose GPT-2 medium beside *model*.", [(MODEL, "GPT-2 small"), (MODEL, "GPT-2 medium")]),
        (f"*{OWN_MODEL}*", [(MODEL, OWN_MODEL)]),
        ("A layer, `blocks.11.mlp.2`, of 12% in 8 steps.", []),
    ],
)
def test_what_the_text_above_a_panel_names(session, text, found):
    assert sorted(named(session, text, [])) == sorted(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`predict(train, batch_size=24)`", [("batch_size", 24)]),
        ("with checkpoint every 4, and 5 more", [("checkpoint_every", 4)]),
        ("a batch of 20, then 21", [("batch_size", 20)]),
        ("A T4 with `bf16` and 3 ranks", []),
    ],
)
def test_elsewhere_a_number_must_stand_behind_its_control(session, text, found):
    assert named(session, "", [text]) == found


def test_what_stands_above_the_panel_comes_first(session):
    assert named(session, "A batch of 3.", ["A batch of 2, a batch of 3."]) == [("batch_size", 3), ("batch_size", 2)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("**Run** trains in `bf16`.\n\n1. Press **Run**.", []),
        ("1. Press **Run** with *checkpoint every* at 0, then at 4.", [{"checkpoint_every": 4}]),
        ("1. **Run** `bf16`, a batch of 2.\n2. The same with 3.", [{"batch_size": 2, "precision": "bf16"}]),
        (
            "1. **Run** a batch of 2.\n2. The same with a batch of 3.\n3. A batch of 4.",
            [{"batch_size": 2}, {"batch_size": 3}],
        ),
        ("1. **Run** both precisions.\n2. The same with a T4.", [{"precision": "bf16"}]),
        ("1. Press **Run** with a batch of 2, 3, 4, 5, 6, 7, 8.", [{"batch_size": n} for n in (2, 3, 4, 5, 6)]),
    ],
)
def test_what_the_reader_is_asked_to_run_is_recorded(session, text, wanted):
    first, *others = runs(session, text)
    assert first == {}
    assert others == wanted
