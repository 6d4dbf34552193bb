import json
import math
from html import escape

import pytest
import torch

from memlab import Lab, predict
from memlab.errors import BadValue
from memlab.lab.checks import OWN_MODEL
from memlab.lab.page import choose_axes, combinations, point, predict_grid
from memlab.lab.page.grid import CARD, MODEL, Point
from memlab.lab.screen import View
from memlab.trace import Trace
from memlab.units import format_bytes
from memlab.vgpu import find_card
from tests.lab.loops import train


def lab(**controls):
    return Lab(train, **controls).session


def test_sliders_are_thinned_and_keep_their_ends_and_where_they_begin():
    axes = choose_axes(lab(batch_size=(1, 64), width=(16, 512), compiled=bool), ["T4", "H100"], most=100)
    assert [axis.name for axis in axes] == ["batch_size", "width", "compiled", CARD]
    assert math.prod(len(axis.values) for axis in axes) <= 100
    batch = axes[0]
    assert (batch.values[0], batch.values[-1], batch.values[batch.start]) == (1, 64, 8)
    assert [axis.kind for axis in axes] == ["slider", "slider", "switch", "menu"]


def test_a_sliders_places_are_round_and_as_many_as_there_is_room_for():
    (batch, _) = choose_axes(lab(batch_size=(1, 64)), ["T4"], most=9)
    assert batch.values == (1, 8, 16, 24, 32, 40, 48, 56, 64)
    (share, _) = choose_axes(lab(width=(0.0, 16)), ["T4"], most=5)
    assert share.values == (0.0, 4.0, 8.0, 12.0, 16)
    (few, _) = choose_axes(lab(batch_size=(6, 9)), ["T4"], most=99)
    assert few.values == (6, 7, 8, 9)
    (many, _) = choose_axes(lab(batch_size=(1, 1000)), ["T4"], most=99)
    assert len(many.values) == 17


def test_values_that_the_text_names_are_there_before_others():
    named = [("batch_size", 20), ("width", 33), ("batch_size", 21), (CARD, "L4")]
    batch, width, cards = choose_axes(lab(batch_size=(1, 64), width=(16, 512)), ["T4", "H100"], 34, named)
    assert batch.values == (1, 8, 20, 21, 64)
    assert width.values == (16, 33, 512)
    assert cards.values == ("L4", "T4")


def test_what_is_named_first_is_there_where_not_all_fits():
    named = [("batch_size", 20), ("batch_size", 21)]
    (batch, _) = choose_axes(lab(batch_size=(1, 64)), ["T4"], 4, named)
    assert batch.values == (1, 8, 20, 64)


def test_models_that_the_text_names_are_in_a_menu_and_the_one_that_runs():
    models = {name: {"width": 8 * len(name)} for name in ("wide", "wider", "the widest")}
    session = Lab(train, batch_size=(8, 9), models=models).session
    assert MODEL not in [axis.name for axis in choose_axes(session, ["T4"])]
    _, menu, _ = choose_axes(session, ["T4"], named=[(MODEL, "the widest")])
    assert (menu.values, menu.kind, menu.start) == (("wide", "the widest", OWN_MODEL), "menu", 0)
    grid = predict_grid(session, choose_axes(session, ["T4"], named=[(MODEL, "the widest")]))
    for shown, chosen in zip(grid.shown, combinations(grid.axes), strict=True):
        width = {"wide": 32, "the widest": 80, OWN_MODEL: 16}[chosen[MODEL]]
        trace = predict(train, gpu="T4", batch_size=chosen["batch_size"], width=width)
        assert shown["trace"] == trace.to_plain()
        assert shown["model"] == ("" if chosen[MODEL] == OWN_MODEL else chosen[MODEL])


def test_menus_are_kept_whole():
    (menu, cards) = choose_axes(lab(optimizer=["SGD", "Adam"]), ["H100", "T4"])
    assert (menu.values, menu.kind, menu.start) == (("SGD", "Adam"), "menu", 0)
    assert (cards.values, cards.start) == (("H100", "T4"), 1)


def test_the_panels_own_card_is_always_there():
    (_, cards) = choose_axes(lab(optimizer=["SGD", "Adam"], gpu="RTX 3060"), ["H100", "T4"])
    assert (cards.values, cards.start) == (("RTX 3060", "H100", "T4"), 0)


def test_doubling_steps_are_thinned_before_cards_go():
    def ranks(device, *, strategy="a", batch=8):
        yield from train(device, batch_size=batch)

    session = Lab(ranks, strategy=["a", "b"], world_size=(1, 1024), batch=(1, 16)).session
    strategy, ranks, batch, cards = choose_axes(session, ["T4", "A100-40GB", "H100"], most=100)
    assert (len(strategy.values), len(ranks.values), len(batch.values), len(cards.values)) == (2, 4, 4, 3)
    assert (ranks.kind, ranks.values[0], ranks.values[-1]) == ("slider", 1, 1024)
    assert batch.values[batch.start] == 8
    whole = choose_axes(session, ["T4"], most=100)
    assert len(whole[1].values) == 11


def test_of_a_slider_the_nearer_end_goes_where_menus_leave_no_room():
    batch, *_ = choose_axes(lab(batch_size=(1, 64), compiled=bool, optimizer=["SGD", "Adam"]), ["T4"], most=8)
    assert batch.values == (8, 64)


def test_cards_go_where_a_slider_would_have_two_places():
    session = lab(batch_size=(1, 64), compiled=bool, optimizer=["SGD", "Adam"], gpu="H100")
    batch, *_, cards = choose_axes(session, ["T4", "H100", "A100-40GB"], most=24)
    assert (len(batch.values), cards.values, cards.start) == (3, ("T4", "H100"), 1)


def test_the_longest_menu_loses_values_and_those_that_are_named_last():
    session = lab(compiled=bool, optimizer=["SGD", "Adam", "AdamW", "Adagrad"])
    _, menu, _ = choose_axes(session, ["T4"], most=4, named=[("optimizer", "AdamW")])
    assert (menu.values, menu.start) == (("SGD", "AdamW"), 0)
    _, menu, _ = choose_axes(session, ["T4"], most=7, named=[("optimizer", "AdamW")])
    assert menu.values == ("SGD", "Adam", "AdamW")


def test_a_setting_may_be_called_model_beside_a_menu_of_models():
    def with_model(device, batch_size=8, width=16, model="plain"):
        yield from train(device, batch_size=batch_size, width=width)

    models = {"wide": {"width": 32}}
    session = Lab(with_model, batch_size=(1, 64), model=["plain", "checkpointed"], models=models).session
    _, own, menu, _ = choose_axes(session, ["T4"], named=[(MODEL, OWN_MODEL)])
    assert (own.values, menu.values) == (("plain", "checkpointed"), ("wide", OWN_MODEL))


def test_too_few_points_are_refused():
    with pytest.raises(BadValue, match="3 points are too few for the menus"):
        choose_axes(lab(batch_size=(1, 64), optimizer=["SGD", "Adam"]), ["T4", "H100"], most=3)


def test_every_point_is_what_predict_says():
    session = lab(batch_size=(1, 64), optimizer=["SGD", "Adam"])
    axes = choose_axes(session, ["T4", "A100-40GB"], most=12)
    grid = predict_grid(session, axes)
    assert len(grid.shown) == len(grid.sentences) == len(list(combinations(axes)))
    for number, chosen in enumerate(combinations(axes)):
        gpu = chosen.pop(CARD)
        trace = predict(train, gpu=gpu, **chosen)
        assert f"peak {format_bytes(trace.peak_allocated)}" in grid.sentences[number]
        assert grid.shown[number] == View(trace, session.choices, room=find_card(gpu).room).to_plain()


def test_a_point_that_runs_out_of_memory_has_what_it_would_take():
    def greedy(device, *, batch_size=4):
        while True:
            yield torch.empty(batch_size * 2**28, device=device)[0]

    session = Lab(greedy, batch_size=(1, 64)).session
    shown, sentence = point(session, {"batch_size": 64, CARD: "T4"})
    assert shown["trace"]["oom"]["asked"] == 64 * 2**30
    assert Trace.from_json(json.dumps(shown["outline"]["trace"])).peak_allocated == 64 * 2**30
    assert "it would take 64.0 GiB" in sentence


def test_points_may_come_from_elsewhere():
    session = lab(batch_size=(1, 64))
    asked = []

    def ask(session, chosen):
        asked.append(chosen)
        return Point(None, f"of {chosen['batch_size']}")

    axes = choose_axes(session, ["T4"], most=3)
    assert predict_grid(session, axes, ask).sentences == ("of 1", "of 8", "of 64")
    assert asked == list(combinations(axes))


def test_it_begins_where_the_panel_does_with_a_still_picture_and_the_loop():
    session = lab(batch_size=(1, 64), optimizer=["Adam", "SGD"], gpu="H100")
    grid = predict_grid(session, choose_axes(session, ["T4", "H100"], most=12))
    begins = list(combinations(grid.axes))[grid.start]
    assert begins == {"batch_size": 8, "optimizer": "SGD", CARD: "H100"}
    trace = predict(train, gpu="H100", batch_size=8)
    assert grid.shown[grid.start]["trace"] == trace.to_plain()
    assert f'<img alt="{escape(trace.sentence)}"' in grid.still
    assert grid.code["lines"][0].startswith("def train(device, *, batch_size=8")
    assert grid.code["first"] == train.__code__.co_firstlineno


def test_the_first_model_is_the_one_that_is_predicted():
    session = Lab(train, batch_size=(8, 9), models={"wide": {"width": 2048}}).session
    grid = predict_grid(session, choose_axes(session, ["T4"], most=2))
    assert grid.shown[0]["model"] == "wide"
    assert grid.shown[0]["heading"] == "batch 8 · wide"
    peak = format_bytes(predict(train, gpu="T4", batch_size=8, width=2048).peak_allocated)
    assert f"peak {peak}" in grid.sentences[0]


def test_what_the_loop_refuses_is_said():
    def picky(device, *, batch_size=1):
        if batch_size > 1:
            raise RuntimeError("one at a time")
        yield from train(device, batch_size=batch_size)

    session = Lab(picky, batch_size=(1, 2)).session
    grid = predict_grid(session, choose_axes(session, ["T4"], most=2))
    assert grid.sentences[1] == "Not possible with these settings: RuntimeError: one at a time"
    assert grid.shown[1] is None
    assert grid.shown[0] is not None


def test_where_it_begins_with_what_cannot_be_predicted_there_is_no_still_picture():
    def never(device, *, batch_size=1):
        raise RuntimeError("never")
        yield

    session = Lab(never, batch_size=(1, 2)).session
    grid = predict_grid(session, choose_axes(session, ["T4"], most=2))
    assert (grid.still, grid.shown) == ("", (None, None))
