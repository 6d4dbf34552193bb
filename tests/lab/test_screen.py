"""The content of a panel's screen: a step with its words, and what stands beside it for a moment."""

import json
from dataclasses import replace

import pytest

from memlab import predict
from memlab.categories import Category, Phase
from memlab.lab.screen import Screen, View
from memlab.trace import Event, Storage, Trace
from memlab.units import GIB, MIB
from tests.golden.traces import FAILED, MEASURED, ON_A_CARD, PREDICTED, PREDICTED_TO_FAIL, SMALLER
from tests.lab.loops import train

NAMES = ("batch_size",)
LIBRARY = Event(8 * MIB, Category.WORKSPACE, Phase.FORWARD, "blocks.0.mlp", "aten.mm", 1)
ROUNDED = replace(
    PREDICTED,
    start={**PREDICTED.start, Category.WORKSPACE: 2 * MIB},
    events=(LIBRARY, *PREDICTED.events, LIBRARY._replace(bytes=-8 * MIB)),
    storages=(
        Storage("weight", (8, 4), "float32", Category.PARAMETER, 32 * MIB),
        Storage("", (), "", Category.WORKSPACE, 0),
    ),
)


def test_a_view_is_its_step_with_its_words():
    plain = View(PREDICTED, NAMES, "GPT-2 small", room=15 * GIB).to_plain()
    assert plain == {
        "trace": PREDICTED.to_plain(),
        "heading": "batch 8 · GPT-2 small",
        "model": "GPT-2 small",
        "origin": "predicted for a T4",
        "facts": "236 MiB peak · at least 41 ms a step, probably 62 ms · at most 194 samples/s, probably 129",
        "why": "",
        "seconds": 0.0618,
        "limits": [[15 * GIB, "T4 · 15.0 GiB", "the T4"]],
        "is_idle": False,
        "hidden": [],
        "outline": None,
    }


@pytest.mark.parametrize(
    "view",
    [
        View(MEASURED, NAMES, outline=ROUNDED, budget=300 * MIB),
        View(replace(MEASURED, steps=(*MEASURED.steps, replace(MEASURED.steps[0], loss=float("nan"))))),
        View(FAILED, NAMES, outline=PREDICTED_TO_FAIL),
        View(PREDICTED_TO_FAIL, room=15 * GIB),
        View(ON_A_CARD, recorded=True),
        View(predict(train)),
    ],
)
def test_a_view_can_be_sent_as_json_and_its_trace_read_again(view):
    sent = json.dumps(view.to_plain(), allow_nan=False)
    assert json.loads(sent) == view.to_plain()
    assert Trace.from_json(json.dumps(json.loads(sent)["trace"])).events == view.trace.events


ROOM, BUDGET = [15 * GIB, "T4 · 15.0 GiB", "the T4"], [300 * MIB, "budget 300 MiB", "the budget"]


@pytest.mark.parametrize(
    ("room", "budget", "limits"),
    [
        (None, None, []),
        (15 * GIB, None, [ROOM]),
        (None, 300 * MIB, [BUDGET]),
        (15 * GIB, 300 * MIB, [ROOM, BUDGET]),
        (15 * GIB, 0, [ROOM]),
    ],
)
def test_the_limits_are_what_the_card_has_and_the_budget(room, budget, limits):
    assert View(PREDICTED, room=room, budget=budget).to_plain()["limits"] == limits


@pytest.mark.parametrize(
    ("trace", "seconds"),
    [(MEASURED, 0.0625), (PREDICTED, 0.0618), (PREDICTED_TO_FAIL, None), (replace(MEASURED, steps=()), None)],
)
def test_the_seconds_are_of_a_step_where_they_are_known(trace, seconds):
    assert View(trace).to_plain()["seconds"] == seconds


@pytest.mark.parametrize(
    ("view", "origin"),
    [
        (View(MEASURED), "measured on CPU, 2 threads"),
        (View(ON_A_CARD, recorded=True), "recorded on NVIDIA L4"),
        (View(replace(PREDICTED, source="about")), "about this, until it is predicted exactly for a T4"),
    ],
)
def test_a_view_says_where_its_step_comes_from(view, origin):
    assert view.to_plain()["origin"] == origin


def test_workspace_can_be_hidden_and_its_bytes_stay():
    shown, hidden = (View(ROUNDED).to_plain(workspace=workspace) for workspace in (True, False))
    assert (shown["hidden"], hidden["hidden"]) == ([], ["workspace"])
    assert hidden == shown | {"hidden": ["workspace"]}


def outline_of(run, predicted):
    outline = View(run, outline=predicted).to_plain()["outline"]
    return outline["name"], outline["trace"]


def test_on_a_cpu_a_run_is_compared_with_the_tensors_that_were_predicted():
    """It has no allocator that rounds up, and its libraries take what they want unseen."""
    name, trace = outline_of(MEASURED, ROUNDED)
    assert name == "predicted (dashed), without workspace:"
    drawn = Trace.from_json(json.dumps(trace))
    assert (drawn.start, drawn.events) == (PREDICTED.start, PREDICTED.events)
    assert drawn.peak_allocated == PREDICTED.peak_allocated < ROUNDED.peak_allocated
    assert drawn.storages == ROUNDED.storages  # which events name by their place


def test_on_a_card_a_run_is_compared_with_all_that_was_predicted():
    name, trace = outline_of(ON_A_CARD, ROUNDED)
    assert name == "predicted for T4 (dashed):"
    assert trace == ROUNDED.to_plain()


def test_behind_a_prediction_that_runs_out_of_memory_is_what_it_would_take():
    name, trace = outline_of(PREDICTED_TO_FAIL, ROUNDED)
    assert name == "with room enough (dashed):"
    assert trace == ROUNDED.to_plain()


def test_a_view_without_a_prediction_has_no_outline():
    assert View(MEASURED).to_plain()["outline"] is None


@pytest.fixture
def screen():
    return Screen({"batch_size": 8})


def told_by(screen):
    told = []
    screen.on_change = told.append
    return told


def test_a_screen_begins_with_nothing(screen):
    assert screen.picture() is None
    assert (screen.run, screen.rows, screen.action) == (None, (), "Run")


def test_what_is_nearly_right_stands_in_the_place_of_what_was_there_for_a_moment(screen):
    told = told_by(screen)
    exact, nearly, next_one = View(PREDICTED), View(replace(PREDICTED, source="about")), View(MEASURED)
    screen.look_at(exact)
    screen.look_nearly_at(nearly)
    assert screen.picture() == nearly.to_plain()
    assert screen.view is exact  # what can be taken away
    screen.look_at(next_one)
    assert screen.picture() == next_one.to_plain()
    assert screen.nearly is None
    screen.look_nearly_at(nearly)
    screen.look_at(None)
    assert screen.picture() is None
    assert told == ["view", "nearly", "view", "nearly", "view"]


def test_whoever_is_told_of_a_view_sees_it(screen):
    seen = []
    screen.look_nearly_at(View(SMALLER))
    screen.on_change = lambda name: seen.append(screen.picture()["trace"]["source"])
    screen.look_at(View(PREDICTED))
    assert seen == ["predicted"]


def test_workspace_is_hidden_in_whatever_is_on_show(screen):
    screen.look_at(View(ROUNDED))
    screen.show(workspace=False)
    assert screen.picture()["hidden"] == ["workspace"]
    screen.look_nearly_at(View(ROUNDED))
    assert screen.picture()["hidden"] == ["workspace"]


def test_a_prediction_is_kept_and_nothing_else_is(screen):
    for view in (None, View(MEASURED)):
        screen.look_at(view)
        screen.keep()
        assert screen.rows == ()
        assert screen.note.text.startswith("Keep is for predictions")
    screen.look_at(View(PREDICTED, NAMES, "GPT-2 small"))
    screen.keep()
    (row,) = screen.rows
    assert (row.settings, row.model, row.device, row.number) == ({"batch_size": 8}, "GPT-2 small", "T4", 1)
    assert screen.note.text == ""
