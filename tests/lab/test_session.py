"""A session without a display: what runs, what is predicted, what is said, and what is refused."""

import gc
import json
import re
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path

import pytest
import torch
from torch import nn

from memlab import logbook, predict
from memlab.errors import BadTrain, BadValue, MemlabError
from memlab.lab import jobs
from memlab.lab.session import Session
from memlab.lab.steady import MOST_STEPS
from memlab.vgpu import find_card
from tests.lab.loops import Slow, SlowToRun, train
from tests.waiting import SOON, wait_for

ROOT = Path(__file__).parents[2]


def make(train=train, **options):
    named = {"steps": 5, "device": "cpu", "budget": None, "gpu": "T4", "title": None, "models": None}
    given = {name: options.pop(name, value) for name, value in named.items()}
    return Session(train, {"batch_size": (1, 64), **options}, **given)


def status(session):
    return session.screen.status.text


def note(session):
    return session.screen.note.text


def test_a_session_needs_no_widgets():
    code = "import sys; from memlab.lab.session import Session; print({'ipywidgets', 'anywidget'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_run_trains_with_what_is_chosen_and_gives_the_trace():
    session = make(width=[16, 32])
    trace = session.run(batch_size=4, width=32)
    assert trace is session.traces[-1]
    assert trace.settings == {"batch_size": 4, "width": 32, "compiled": False, "optimizer": "SGD"}
    assert len(trace.steps) == 5
    assert session.screen.settings == {"batch_size": 4, "width": 32}
    assert session.run().settings["width"] == 32  # it stays chosen
    assert session.run(optimizer="AdamW").settings["optimizer"] == "AdamW"  # no control, passed on


def test_the_picture_the_losses_and_the_sentence_are_there_when_a_run_has_ended():
    session = make()
    trace = session.run()
    screen = session.screen
    picture, run = screen.picture(), screen.run
    assert picture["trace"] == trace.to_plain()
    assert (picture["heading"], picture["origin"]) == ("batch 8", f"measured on {trace.device}")
    assert (run["losses"], run["count"], run["xrays"]) == (list(trace.losses), 5, 3)
    assert (run["name"], run["going"], screen.action) == ("last run, batch 8", False, "Run")
    assert screen.sentence.startswith(trace.sentence.capitalize()[0] + trace.sentence[1:])
    assert "bytes of live tensor storages" in screen.sentence
    assert status(session) == "Done after 5 of 5 steps. Ready."
    predicted(session, batch_size=9)
    assert (screen.picture()["heading"], screen.run) == ("batch 9", run)  # what the run learned stays on show


def test_what_was_on_show_before_a_run_is_dimmed_until_its_first_step():
    session = make()
    predicted(session)
    seen = []

    def noted(name):
        if name == "pending":
            seen.append((session.screen.pending, session.screen.view.trace.source))

    session.screen.on_change = noted
    session.run()
    assert ("The picture of this run comes with its first step.", "predicted") in seen
    assert seen[-1] == ("", "measured")


def test_whatever_is_on_show_can_be_sent_to_a_browser():
    """As JSON, which has no NaN."""

    def diverging(device, *, batch_size=8):
        yield from (1.0, float("inf"), float("nan"), None)

    session = make(diverging)
    session.run()
    assert session.screen.run["losses"] == [1.0, "inf", "nan", None]
    for what in (session.screen.picture(), session.screen.run):
        assert json.loads(json.dumps(what, allow_nan=False)) == what


def test_the_second_run_is_compared_with_the_first_and_its_losses_are_drawn_over_it():
    session = make()
    first, second = session.run(batch_size=8), session.run(batch_size=64)
    times = second.peak_allocated / first.peak_allocated
    said = f"That is {times:.2f} times the run before; a step takes 8.00 times the arithmetic."
    assert said in session.screen.sentence
    assert session.screen.run["earlier"] == [list(first.losses)]
    for _ in range(3):
        session.run()
    assert session.screen.run["earlier"] == [list(second.losses)] * 3  # the same settings, the same losses
    assert first not in session.traces


def test_stop_ends_a_run():
    slow = SlowToRun()
    session = make(slow, steps=100)
    job = session.start()
    assert session.screen.action == "Stop"
    slow.step.release()
    wait_for(lambda: session.screen.action.startswith("Stop · 1 of 100"))
    assert (len(session.screen.run["losses"]), session.screen.run["going"]) == (1, True)
    session.stop()
    assert status(session) == "Stopping."
    slow.step.release()
    trace = job.result(SOON)
    assert trace is session.traces[-1]
    assert len(trace.steps) in (1, 2)  # within the step, or after it
    assert status(session) == f"Stopped after {len(trace.steps)} of 100 steps. Ready."
    assert session.screen.action == "Run"
    assert (len(session.screen.run["losses"]), session.screen.run["going"]) == (len(trace.steps), False)


def test_stop_ends_a_run_that_has_not_begun_because_it_is_predicted_first():
    slow = Slow()
    session = make(slow)
    job = session.start()
    assert slow.in_step.wait(SOON)
    session.stop()
    assert (status(session), session.screen.action) == ("Stopping.", "Stop")
    slow.step.release(MOST_STEPS)
    assert job.result(SOON) is None
    assert (status(session), session.screen.action) == ("Stopped before the first step. Ready.", "Run")
    assert session.screen.view is None


def test_stop_at_the_very_end_of_a_run_leaves_no_panel_that_says_it_is_stopping():
    session = make()
    said = []

    def pressed(name):
        if name == "status" and "Done" in status(session):
            session.stop()
            said.append(status(session))

    session.screen.on_change = pressed
    session.run()
    assert not session.busy
    assert said == [status(session)] != ["Stopping."]


def test_a_loop_that_ends_by_itself_is_said_to_have_ended():
    def short(device, *, batch_size=8):
        yield torch.ones(batch_size).sum()

    session = make(short)
    assert len(session.run().steps) == 1
    assert status(session) == "The training loop ended after 1 of 5 steps. Ready."


def test_running_out_of_memory_in_the_last_step_is_no_success():
    def growing(device, *, batch_size=8):
        for size in (8, 4096):
            yield torch.ones(size).sum()

    session = make(growing, steps=2, budget="1 KiB")
    assert session.run().oom
    assert status(session) == "Out of memory after 2 of 2 steps. Ready."


def test_a_second_run_ends_the_first():
    slow = SlowToRun()
    session = make(slow, steps=3)
    first = session.start()
    wait_for(lambda: "Training" in status(session))
    assert slow.in_step.wait(SOON)
    second = session.start()
    told = []
    session.screen.on_change = lambda name: told.append(session.screen.action) if name == "action" else None
    slow.step.release(4)
    assert len(second.result(SOON).steps) == 3
    assert first.done()
    assert len(first.result().steps if first.result() else ()) < 2
    assert [action for action in told if not action.startswith("Stop")] == ["Run"]  # once both have ended
    assert told[-1] == "Run"


def test_stop_before_start_says_that_nothing_runs():
    session = make()
    session.stop()
    assert status(session) == "Nothing is running: press Run to start."


def test_what_is_chosen_during_a_run_counts_for_the_next_and_disturbs_nothing():
    slow = SlowToRun()
    session = make(slow, steps=2)
    job = session.start()
    assert slow.in_step.wait(SOON)
    session.choose("batch_size", 32)
    assert note(session) == "For the next run: batch size 32."
    assert session.prediction is None
    slow.step.release(2)
    assert job.result(SOON).settings["batch_size"] == 8
    assert len(job.result().steps) == 2
    assert session.screen.settings == {"batch_size": 32}
    assert status(session) == "Done after 2 of 2 steps. Ready."


@pytest.mark.parametrize(
    "choose",
    [
        lambda session: session.choose("batch_size", 9),
        lambda session: session.choose_card("L4"),
        lambda session: session.choose_model("Wide"),
        lambda session: session.bring_back(1),
    ],
)
def test_what_is_chosen_after_a_run_takes_back_how_the_run_ended(choose):
    session = make(models={"Wide": {"width": 64}})
    session.run()
    assert status(session) == "Done after 5 of 5 steps. Ready. To predict Wide again, choose it under model."
    choose(session)
    assert session.screen.status == ("Ready: Run trains 5 steps.", False)


def test_what_is_chosen_after_a_failure_takes_the_alert_back():
    session = make(raises(RuntimeError("mine")))
    with pytest.raises(RuntimeError):
        session.run()
    assert session.screen.status.alert
    session.choose("batch_size", 9)
    assert session.screen.status == ("Ready: Run trains 5 steps.", False)


def test_choosing_what_is_chosen_is_no_choice():
    session = make(models={"Wide": {"width": 64}})
    session.run()
    session.choose("batch_size", 8)
    session.choose_card("t4")
    session.choose_model(session.model)
    assert status(session) == "Done after 5 of 5 steps. Ready. To predict Wide again, choose it under model."
    assert session.prediction is None


def test_the_budget_takes_sizes_and_refuses_the_rest():
    session = make(batch_size=(1, 4096))
    for text, size in (("15 GB", "14.0 GiB"), ("15GiB", "15.0 GiB"), ("16106127360", "15.0 GiB")):
        session.choose_budget(text)
        assert note(session) == f"From the next run on: a budget of {size}."
    for text in ("none", ""):
        session.choose_budget(text)
        assert note(session) == "From the next run on: no budget."
    session.choose_budget("lots")
    assert "'lots' is not a number of bytes" in note(session)
    with pytest.raises(BadValue, match="'lots'"):
        session.start()
    session.choose_budget("10 KiB")
    assert session.run(batch_size=4096).oom.limit == 10240
    assert (
        "Out of memory outside of forward, backward and optimizer at aten.ones: asked for 256 KiB"
        in session.screen.sentence
    )
    assert status(session) == "Out of memory after 1 of 5 steps. Ready."


def test_an_exception_in_the_worker_comes_out_of_run_and_is_told_with_its_line():
    def broken(device, *, batch_size=8):
        yield 1.0
        raise RuntimeError("mine")

    session = make(broken)
    with pytest.raises(RuntimeError, match="mine"):
        session.run()
    assert session.screen.status == (
        "RuntimeError: mine (line 3 of broken). Fix it, then run its cell and the panel's again.",
        True,
    )
    with pytest.raises(RuntimeError, match="mine"):
        session.start().result(SOON)


def test_a_run_that_fails_later_shows_the_steps_before_and_goes_on_no_more():
    def late(device, *, batch_size=8):
        yield from (torch.ones(batch_size).sum() for _ in range(2))
        raise RuntimeError("mine")

    session = make(late)
    with pytest.raises(RuntimeError):
        session.run()
    run, picture = session.screen.run, session.screen.picture()
    assert (run["losses"], run["going"], run["name"]) == ([8, 8], False, "last run, batch 8")
    assert (session.screen.action, picture["heading"]) == ("Run", "batch 8")
    assert session.traces == session.screen.rows == ()  # it is no run to compare others with


def test_ctrl_c_stops_the_run_and_keeps_what_is_known(monkeypatch):
    slow = SlowToRun()
    session = make(slow, steps=100)
    slow.step.release(3)

    def interrupted(jobs, timeout=None):
        if timeout is None:
            return original(jobs)
        wait_for(lambda: slow.step._value == 0)
        slow.step.release()
        raise KeyboardInterrupt

    original = futures.wait
    monkeypatch.setattr(futures, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert not session.busy
    assert 1 <= len(session.traces[-1].steps) <= 4


def test_nothing_changes_when_a_setting_is_refused():
    session = make()
    with pytest.raises(BadValue, match="batch size 65 is out of range"):
        session.run(batch_size=65)
    with pytest.raises(BadValue, match="batch size 65 is out of range"):
        session.choose("batch_size", 65)
    with pytest.raises(BadValue, match="no setting 'batchsize'"):
        session.run(batchsize=4)
    with pytest.raises(BadValue, match="no setting 'x'"):
        session.run(batch_size=4, x=1)
    assert session.screen.settings == {"batch_size": 8}
    assert session.traces == ()


def takes_steps(device, *, steps=3):
    yield 1.0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: make(depth=(1, 4)),
            BadValue,
            r"depth=\(1, 4\) controls nothing: the settings of train are batch_size",
        ),
        (lambda: make(width=(32, 64)), BadValue, "width 16 is out of range"),
        (lambda: make(width="wide"), BadValue, "width='wide' makes no control"),
        (lambda: make(budget="lots"), BadValue, "'lots' is not a number of bytes"),
        (lambda: make(steps=0), BadValue, "steps=0"),
        (lambda: make(device="tpu"), BadValue, "device 'tpu'"),
        (lambda: make(gpu="K80"), BadValue, "gpu 'K80' is not a card"),
        (lambda: make(models=["wide"]), BadValue, r"models=\['wide'\] names no models"),
        (lambda: make(models={"wide": 768}), BadValue, "models={'wide': 768} names no models"),
        (
            lambda: make(models={"wide": {"width": 64, "batch_size": 2}}),
            BadValue,
            "model 'wide' sets batch_size=2, which a control sets",
        ),
        (
            lambda: make(models={"wide": {"heads": 12}}),
            BadValue,
            "model 'wide': train has no setting 'heads': its settings are batch_size, width",
        ),
        (lambda: make(3), BadTrain, "3 is not a function"),
        (lambda: make(takes_steps), BadTrain, "a setting 'steps', which memlab itself takes"),
    ],
)
def test_what_cannot_be_put_on_a_panel_is_told_at_once(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_setting_without_a_default_begins_at_the_first_choice():
    def needs(device, *, width, depth, compiled):
        yield 1.0

    session = Session(
        needs,
        {"width": [32, 64], "depth": (2, 4), "compiled": bool},
        steps=1,
        device="cpu",
        budget=None,
        gpu="T4",
        title=None,
    )
    assert session.screen.settings == {"width": 32, "depth": 2, "compiled": False}


def test_runs_leave_no_bytes_behind():
    session = make()
    session.run()

    def live():
        gc.collect()
        return [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, nn.Parameter)]

    before = live()  # held, so that no later tensor has the place of one of them
    known = set(map(id, before))
    for _ in range(5):
        session.run(batch_size=64)
    # In the end: the sessions of other tests may still be at work.
    wait_for(lambda: all(id(tensor) in known for tensor in live()))


def test_what_is_chosen_is_predicted_before_anything_trains():
    session = make()
    session.choose("batch_size", 32)
    wait_for(lambda: "Predicted for a T4" in session.screen.sentence)
    picture = session.screen.picture()
    assert picture["origin"] == "predicted for a T4"
    assert picture["limits"] == [ROOM]
    assert "PyTorch would reserve" in session.screen.sentence
    assert session.traces == ()  # nothing has trained
    session.choose("batch_size", 8)
    wait_for(lambda: "B of batch 32" in session.screen.sentence)


ROOM = [find_card("T4").room, "T4 · 14.4 GiB", "the T4"]


def test_a_budget_is_drawn_beside_the_card_whatever_is_shown():
    session = make()

    def limits():
        return session.screen.picture()["limits"]

    budget = [2048, "budget 2.00 KiB", "the budget"]
    predicted(session)
    session.choose_budget("2 KiB")
    assert limits() == [ROOM, budget]
    assert "over the budget" not in session.screen.sentence
    predicted(session, batch_size=64)
    assert limits() == [ROOM, budget]
    assert " over the budget. " in session.screen.sentence
    session.run()
    assert limits() == [budget]  # it ran here, not on the card
    session.choose_budget("none")
    assert limits() == []


def test_the_time_left_is_said_only_while_a_run_goes_on():
    slow = SlowToRun()
    session = make(slow, steps=2)
    job = session.start()
    assert session.screen.action == "Stop"
    slow.step.release()
    wait_for(lambda: re.fullmatch(r"Stop · 1 of 2 · [\d.]+ (us|ms|s)", session.screen.action))
    slow.step.release()
    job.result(SOON)
    assert session.screen.action == "Run"


def test_another_card_is_predicted_at_once():
    session = make(gpu="h100")
    assert session.gpu == "H100"
    session.choose_card("L4")
    wait_for(lambda: "Predicted for an L4" in session.screen.sentence)


def test_past_the_cards_capacity_the_session_says_what_cuda_would():
    def greedy(device, *, batch_size=1):
        while True:
            kept = [torch.empty(2**28, device=device) for _ in range(batch_size)]
            yield kept[0][0]

    session = make(greedy, steps=1)
    session.choose("batch_size", 40)
    wait_for(lambda: "CUDA out of memory. Tried to allocate 1024.00 MiB." in session.screen.sentence)
    picture = session.screen.picture()
    assert picture["trace"]["oom"]["asked"] == 2**30
    assert picture["limits"] == [ROOM]


def test_a_loop_that_cannot_be_predicted_can_still_be_measured():
    def branching(device, *, batch_size=8):
        while True:
            x = torch.randint(0, 9, (100 * batch_size,), device=device)
            yield torch.bincount(x).sum().float()

    session = make(branching)
    session.choose("batch_size", 4)
    wait_for(lambda: "No prediction: " in note(session))
    assert "depends on the data" in note(session)
    assert len(session.run().steps) == 5


WITHOUT_A_PRIVATE_NAME = """
import torch
del torch._C._acc.PrivateUse1Hooks
from tests.lab.test_session import make, note, predicted
session = make()
predicted(session)
print(note(session))
print(len(session.run().steps))
"""


def test_a_torch_that_cannot_carry_the_virtual_gpu_can_still_be_measured():
    done = subprocess.run([sys.executable, "-c", WITHOUT_A_PRIVATE_NAME], capture_output=True, text=True, cwd=ROOT)
    said, steps = done.stdout.splitlines()
    assert said.startswith("No prediction: torch ")
    assert steps == "5"


TWO_AT_ONCE = """
from memlab import predict
from tests.lab.test_session import make, note, train
sessions = [make(), make()]
for session in sessions:
    session.predict()
print(predict(train).device)
for session in sessions:
    session._worker._latest.result(60)
    print(session.prediction is not None, note(session))
"""


def test_two_sessions_and_a_prediction_may_be_the_first_of_a_process_together():
    done = subprocess.run([sys.executable, "-c", TWO_AT_ONCE], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["T4", "True ", "True "], done.stderr


@pytest.mark.parametrize("known", [False, True])
def test_a_run_is_drawn_over_what_was_predicted_of_it_and_names_it(known):
    session = make(gpu="L4")
    if known:
        predicted(session, batch_size=16)
    trace = session.run(batch_size=16)
    outline = session.screen.view.outline
    assert outline == predict(train, gpu="L4", batch_size=16)
    both = f"{outline.peak_text}, without workspace {trace.peak_text}"
    assert f"Predicted for an L4: {both}." in session.screen.sentence
    assert session.screen.view.trace == trace
    assert (session.prediction is not None) == known  # what is foreseen is not on show
    assert session.run(batch_size=2).settings["batch_size"] == 2
    assert session.screen.view.outline == predict(train, gpu="L4", batch_size=2)


def test_a_run_is_predicted_once_and_again_when_a_cell_has_run():
    calls = []

    def counted(device, *, batch_size=8):
        calls.append(device.type == "cpu")
        yield from train(device, batch_size=batch_size)

    session = make(counted)
    calls.clear()
    session.run()
    session.run()
    assert calls == [False, True, True]
    session.hold()  # it may be another loop now
    session.run()
    assert calls[3:] == [False, True]


def test_a_setting_without_a_control_is_a_part_of_what_is_predicted():
    session = make()
    session.run(optimizer="AdamW")
    assert session.screen.view.outline == predict(train, gpu="T4", batch_size=8, optimizer="AdamW")


def test_a_run_that_cannot_be_predicted_has_no_outline_and_says_nothing_of_it():
    def branching(device, *, batch_size=8):
        while True:
            x = torch.randint(0, 9, (100 * batch_size,), device=device)
            yield torch.bincount(x).sum().float()

    session = make(branching)
    session.run()
    assert session.screen.picture()["outline"] is None
    assert (note(session), status(session)) == ("", "Done after 5 of 5 steps. Ready.")
    assert "Predicted" not in session.screen.sentence


def test_what_is_forgotten_while_a_run_is_foreseen_disturbs_nothing(monkeypatch):
    session = make()
    predicted(session)
    remembered = session._forecast._remembered
    was_there = type(remembered).__contains__

    def forgotten(remembered, key):
        there = was_there(remembered, key)
        if threading.current_thread().name == "memlab lab":
            session.hold()  # in between, a cell begins
        return there

    monkeypatch.setattr(type(remembered), "__contains__", forgotten)
    assert len(session.run().steps) == 5
    assert session.screen.view.outline is None


MODELS = {"Wide": {"width": 512}, "Wider": {"width": 1024}}


def test_the_first_model_is_predicted_and_another_when_it_is_chosen_but_run_trains_its_own():
    session = make(models=MODELS)
    assert list(session.models) == ["Wide", "Wider", "the one that Run trains"]
    assert predicted(session, batch_size=4).settings["width"] == 512
    assert session.prediction.settings["batch_size"] == 4
    picture = session.screen.picture()
    assert (picture["heading"], picture["model"]) == ("batch 4 · Wide", "Wide")
    assert picture["origin"] == "predicted for a T4"
    assert session.screen.sentence.startswith("Wide, predicted for a T4: ")
    trace = session.run()
    assert trace.settings["width"] == 16
    assert session.model == "the one that Run trains"  # what is predicted now is of what has run
    picture = session.screen.picture()
    assert (picture["heading"], picture["model"]) == ("batch 4", "")
    assert session.screen.view.outline.settings == trace.settings
    assert f"Predicted for a T4: {session.screen.view.outline.peak_text}, without workspace " in session.screen.sentence
    assert predicted(session, batch_size=5).settings == trace.settings | {"batch_size": 5}
    session.choose_model("Wider")
    session._worker._latest.result(SOON)
    assert session.prediction.settings["width"] == 1024
    session.choose_model("the one that Run trains")  # the last of them: it is known
    assert session.prediction.settings["width"] == 16
    assert session.screen.sentence.startswith("Predicted for a T4: ")
    with pytest.raises(BadValue, match="model 'Widest' is not on this panel: give one of 'Wide', 'Wider'"):
        session.choose_model("Widest")


def test_only_predictions_of_one_model_are_compared():
    session = make(models=MODELS)
    predicted(session)
    session.choose_model("Wider")
    session._worker._latest.result(SOON)
    assert "That is" not in session.screen.sentence
    predicted(session, batch_size=64)
    assert re.search(r"That is \d+% above the .* of batch \d+", session.screen.sentence)


def test_a_row_of_the_table_brings_back_settings_model_and_of_a_prediction_its_card():
    session = make(optimizer=["SGD", "AdamW"], models={"Wide": {"width": 64}}, gpu="L4")
    predicted(session, batch_size=4, optimizer="AdamW")
    session.screen.keep()
    session.run(batch_size=9, optimizer="SGD")
    session.choose_card("T4")
    session.bring_back(1)
    assert session.screen.settings == {"batch_size": 4, "optimizer": "AdamW"}
    assert (session.model, session.gpu) == ("Wide", "L4")
    assert session.screen.picture()["heading"] == "batch 4 · optimizer AdamW · Wide"  # known, so at once
    assert session.screen.picture()["origin"] == "predicted for an L4"
    session.choose_card("T4")
    session.bring_back(2)
    assert session.screen.settings == {"batch_size": 9, "optimizer": "SGD"}
    assert (session.model, session.gpu) == ("the one that Run trains", "T4")  # it ran on no card
    session._worker._latest.result(SOON)
    assert session.prediction.settings["batch_size"] == 9
    before = session.screen.view
    session.bring_back(3)  # there is none
    assert (session.screen.view, session.screen.settings["batch_size"]) == (before, 9)


def test_a_row_that_is_brought_back_during_a_run_counts_for_the_next():
    slow = SlowToRun()
    session = make(slow, steps=1)
    slow.step.release()
    session.run(batch_size=32)
    job = session._start({"batch_size": 9}, None)
    session.bring_back(1)
    assert note(session) == "For the next run: batch size 32."
    slow.step.release()
    assert job.result(SOON).settings["batch_size"] == 9


def test_a_row_brings_back_a_value_that_json_does_not_have():
    def typed(device, *, dtype=torch.float32):
        yield torch.ones(8, dtype=dtype, device=device).sum()

    session = Session(
        typed,
        {"dtype": [torch.float32, torch.bfloat16]},
        **{"steps": 1, "device": "cpu", "budget": None, "gpu": "T4", "title": None},
    )
    session.run(dtype=torch.bfloat16)
    session.choose("dtype", torch.float32)
    session.bring_back(1)
    assert session.screen.settings == {"dtype": torch.bfloat16}


def predicted(session, **settings):
    """The prediction for the settings, when the worker is done with it."""
    session.screen.settings |= settings
    session.predict()
    session._worker._latest.result(SOON)
    return session.prediction


def test_a_steady_loop_is_predicted_in_three_steps():
    session = make()
    assert len(predicted(session).steps) == 3
    assert "steady" not in session.screen.sentence


def test_a_loop_that_grows_is_predicted_until_that_is_plain_and_it_is_said_by_how_much():
    def keeping(device, *, batch_size=8):
        kept = []
        while True:
            kept.append(torch.ones(batch_size * 2**18, device=device))
            yield kept[-1].sum()

    session = make(keeping)
    trace = predicted(session, batch_size=12)
    assert len(trace.steps) == MOST_STEPS
    assert trace.peak_allocated > 8 * 12 * 2**20
    assert "It never is steady: it grows by 12.0 MiB every step." in session.screen.sentence


def test_a_loop_that_runs_out_of_memory_late_is_predicted_until_then_where_the_card_is_nearly_full():
    """Others of its kind were steady after two steps; here the third asks for more than is left, as of free blocks."""

    def late(device, *, batch_size=1):
        for step in range(MOST_STEPS):
            held = torch.empty(batch_size, 2**30, dtype=torch.uint8, device=device)
            more = torch.empty(2**30 if step > 1 and batch_size > 12 else 1, dtype=torch.uint8, device=device)
            yield held[0, 0].float() + more[0]
            del held, more

    session = make(late, batch_size=(1, 14))
    assert predicted(session, batch_size=1).oom is None
    assert predicted(session, batch_size=3).oom is None
    assert len(predicted(session, batch_size=2).steps) == 2  # alike in all but a number
    assert predicted(session, batch_size=14).oom is not None


def test_stop_ends_a_prediction():
    slow = Slow()
    session = make(slow)
    session.predict()
    assert slow.in_step.wait(SOON)
    session.stop()
    assert status(session) == "Stopped the prediction. Ready."
    slow.step.release(MOST_STEPS)
    session._worker._latest.result(SOON)
    assert session.prediction is None
    assert note(session) == ""
    assert len(session.run().steps) == 5


class Endless:
    """A train that ends ``steps`` steps and then computes for ever, within the next."""

    def __init__(self, steps):
        self.steps = steps
        self.in_last_step = threading.Event()

    def __call__(self, device, *, batch_size=8):
        for _ in range(self.steps):
            yield torch.ones(batch_size, device=device).sum()
        while True:
            torch.ones(batch_size, device=device).sum()
            self.in_last_step.set()
        yield None


@pytest.mark.parametrize(
    ("steps", "words"), [(0, "Stopped before the first step. Ready."), (2, "Stopped after 2 of 5 steps. Ready.")]
)
def test_a_run_that_is_stopped_within_a_step_keeps_those_before(steps, words):
    endless = Endless(steps)
    session = make(endless)
    job = session.start()
    assert endless.in_last_step.wait(SOON)
    session.stop()
    trace = job.result(SOON)
    assert len(trace.steps if trace else ()) == steps
    assert session.screen.status == (words, False)


def test_a_prediction_that_is_stopped_within_a_step_shows_nothing():
    endless = Endless(1)
    session = make(endless)
    session.predict()
    assert endless.in_last_step.wait(SOON)
    session.stop()
    session._worker._latest.result(SOON)
    assert session.prediction is None
    assert note(session) == ""
    assert status(session) == "Stopped the prediction. Ready."


def test_what_is_chosen_ends_the_prediction_of_what_was_chosen_before():
    endless = Endless(1)
    session = make(endless)
    session.predict()
    assert endless.in_last_step.wait(SOON)
    endless.steps = 100
    session.choose("batch_size", 32)
    wait_for(lambda: session.prediction is not None)
    assert session.prediction.settings["batch_size"] == 32


def test_a_run_that_waits_for_another_says_so_and_can_be_stopped():
    slow = SlowToRun()
    first, second = make(slow, steps=1), make()
    running = first.start()
    assert slow.in_step.wait(SOON)
    waiting = second.start()
    wait_for(lambda: status(second) == "Waiting for another run to end.")
    second.stop()
    assert waiting.result(SOON) is None
    assert status(second) == "Stopped before the first step. Ready."
    waiting = second.start()
    wait_for(lambda: status(second) == "Waiting for another run to end.")
    slow.step.release()
    assert len(running.result(SOON).steps) == 1
    assert len(waiting.result(SOON).steps) == 5


def test_a_replay_is_refused_while_a_run_is_going_on():
    slow = SlowToRun()
    session = make(slow)
    trace = make().run()
    job = session.start()
    assert slow.in_step.wait(SOON)
    with pytest.raises(MemlabError, match="A run is going on: press Stop"):
        session.replay(trace)
    session.stop()
    slow.step.release(5)
    job.result(SOON)


def test_a_replay_ends_when_something_else_is_chosen():
    session = make()
    trace = make().run()
    session.replay(trace)
    wait_for(lambda: "Recorded with torch" in session.screen.sentence)
    assert session.screen.recorded is trace
    assert session.screen.picture()["origin"] == f"recorded on {trace.device}"
    run = session.screen.run
    assert (run["losses"], run["count"], run["going"]) == (list(trace.losses), 5, False)
    assert run["name"] == f"recorded on {trace.device}"
    session.choose("batch_size", 9)
    assert session.screen.recorded is None
    assert session.screen.run is None


def test_every_change_is_told_by_name_in_the_thread_that_makes_it():
    session = make()
    told = set()
    session.screen.on_change = lambda name: told.add((name, threading.current_thread().name))
    session.run(batch_size=9)
    here = threading.current_thread().name
    assert told == {
        *((name, here) for name in ("settings", "model", "action", "note")),
        *((name, "memlab lab") for name in ("status", "view", "run", "sentence", "pending", "rows", "action")),
    }


def test_every_run_is_logged_and_a_logbook_that_cannot_be_written_stops_none(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "logbook.jsonl"))
    session = make(title="My panel")
    session.run(batch_size=3)
    (entry,), _ = logbook.read()
    assert (entry.title, entry.settings["batch_size"]) == ("My panel", 3)
    (tmp_path / "in_the_way").write_text("")
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "in_the_way" / "logbook.jsonl"))
    assert len(session.run().steps) == 5
    assert "set MEMLAB_LOGBOOK to a file that can" in note(session)


class NeverYields:
    """A train that computes nothing and ends nothing, in its step after ``steps``."""

    def __init__(self, steps):
        self.steps = steps
        self.in_last_step = threading.Event()

    def __call__(self, device, *, batch_size=8):
        for _ in range(self.steps):
            yield torch.ones(batch_size, device=device).sum()
        self.in_last_step.set()
        while True:
            pass
        yield None


@pytest.mark.parametrize("steps", [0, 4])  # of which the fifth is not X-rayed
def test_a_run_that_never_yields_is_broken_off_and_the_next_run_begins(monkeypatch, steps):
    monkeypatch.setattr(jobs, "GRACE", 0.1)
    endless = NeverYields(steps)
    session = make(endless)
    session.start()
    assert endless.in_last_step.wait(SOON)
    session.stop()
    wait_for(lambda: not session.busy)
    assert status(session).startswith("Stopped ")
    endless.in_last_step.clear()
    first = session.start()
    assert endless.in_last_step.wait(SOON)
    endless.steps = 100
    assert len(session.run().steps) == 5
    assert first.done()


def test_a_prediction_that_computes_nothing_and_never_yields_is_broken_off(monkeypatch):
    monkeypatch.setattr(jobs, "GRACE", 0.1)
    monkeypatch.setattr(jobs, "PATIENCE", 0.1)
    endless = NeverYields(1)
    session = make(endless)
    session.predict()
    assert endless.in_last_step.wait(SOON)
    endless.steps = 100
    session.choose("batch_size", 32)
    wait_for(lambda: session.prediction is not None)
    assert session.prediction.settings["batch_size"] == 32
    assert session.screen.pending == ""


class Unspeakable(RuntimeError):
    """An error that cannot be told."""

    def __str__(self):
        raise ValueError("not even this")


def raises(error):
    def train(device, *, batch_size=8):
        raise error
        yield

    return train


def test_an_error_whose_text_raises_another_is_said_all_the_same():
    session = make(raises(Unspeakable()))
    predicted(session)
    assert note(session).startswith("No prediction: Unspeakable: its message cannot be read (ValueError) (line 2 of ")
    with pytest.raises(Unspeakable):
        session.run()
    assert status(session).startswith("Unspeakable: its message cannot be read (ValueError) (line 2 of ")


def test_a_train_that_exits_is_said_to_in_a_prediction_and_a_run():
    session = make(raises(SystemExit("enough")))
    predicted(session)
    assert note(session).startswith("No prediction: SystemExit: enough (line 2 of ")
    assert session.screen.pending == ""
    with pytest.raises(SystemExit):
        session.run()
    assert status(session).startswith("SystemExit: enough (line 2 of ")
