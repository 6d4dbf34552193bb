"""Predictions under the hand: known ones at once, others nearly, and what may come next in idle time."""

import gc
import threading
import weakref
from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from memlab import predict
from memlab.lab import Lab, forecast, jobs, registry
from memlab.lab.forecast_cache import Case, Known, Remembered
from memlab.lab.steady import MOST_STEPS
from memlab.nets import GPT
from memlab.trace import Trace
from tests.lab.loops import Slow, train
from tests.lab.test_session import make, predicted
from tests.waiting import SOON, wait_for


def known(session):
    """The values of batch size that were predicted."""
    kept = session._forecast._remembered._kept.values()
    return {(entry.case.chosen["batch_size"], entry.case.is_endless) for entry in list(kept)}


def pictures(session):
    """The heading and the source of each picture from now on."""
    drawn, screen = [], session.screen

    def noted(name):
        if name in ("view", "nearly"):
            view = screen.nearly or screen.view
            drawn.append((view.heading, view.trace.source))

    screen.on_change = noted
    return drawn


def count_jobs(session, monkeypatch):
    submitted = []
    submit = session._worker.submit
    monkeypatch.setattr(
        session._worker, "submit", lambda *given, **how: submitted.append(submit(*given, **how)) or submitted[-1]
    )
    return submitted


def test_what_was_predicted_is_shown_again_at_once_in_the_thread_that_asks(monkeypatch):
    session = make(width=[16, 32])
    first = predicted(session, batch_size=4)
    sentence, picture = session.screen.sentence, session.screen.picture()
    predicted(session, batch_size=64)
    submitted = count_jobs(session, monkeypatch)
    session.choose("batch_size", 4)
    assert submitted == []
    assert session.prediction == first
    assert session.screen.picture() == picture
    assert session.screen.sentence.startswith(sentence.rstrip("."))  # and then, what it is compared with
    assert "B of batch 64" in session.screen.sentence
    session.choose("width", 32)  # another setting, card or model is another thing
    session.choose_card("L4")
    assert len(submitted) == 2
    submitted[-1].result(SOON)
    assert session.prediction.settings["width"] == 32
    assert session.prediction.device == "L4"


def test_a_switch_is_announced_as_the_heading_says_it():
    session = make(lambda device, *, batch_size=1, tied=True: train(device, batch_size=batch_size), tied=bool)
    said = []
    session.screen.on_change = lambda name: said.append(session.screen.pending)
    session.choose("tied", False)
    assert any(words.endswith("tied off, T4.") for words in said)


def test_a_prediction_on_its_way_is_announced_and_no_alert():
    slow = Slow()
    session = make(slow, gpu="A100-40GB")
    session.choose("batch_size", 24)
    assert slow.in_step.wait(SOON)
    assert session.screen.pending == "Predicting batch size 24, A100-40GB."
    slow.step.release(100)
    session._worker._latest.result(SOON)
    assert session.screen.pending == ""
    lab = Lab(train, batch_size=(1, 64), device="cpu")
    lab.session.screen.show(pending="Predicting batch size 9, T4.")
    assert "Predicting batch size 9, T4." in lab._texts["pending"].value
    assert "role" not in lab._texts["pending"].value


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # of the compiler's own, when it is imported
def test_while_a_prediction_compiles_its_announcement_says_so_and_what_was_compiled_is_shown_at_once(monkeypatch):
    in_compiler, go_on = threading.Event(), threading.Event()

    def backend(graph, inputs):
        in_compiler.set()
        assert go_on.wait(SOON)
        return graph.forward

    def compiling(device, *, batch_size=8):
        double = torch.compile(lambda x: x * 2, backend=backend)
        while True:
            yield double(torch.ones(batch_size, device=device)).sum()

    session = make(compiling)
    session.choose("batch_size", 9)
    assert in_compiler.wait(SOON)
    said = "Predicting batch size 9, T4. PyTorch compiles the code first, which may take half a minute."
    assert session.screen.pending == said
    session.choose("batch_size", 20)
    assert session.screen.pending == "Predicting batch size 20, T4."
    session.choose("batch_size", 9)  # which has not ended yet
    assert session.screen.pending == said
    go_on.set()
    wait_for(lambda: session.screen.pending == "")
    predicted(session, batch_size=20)
    submitted = count_jobs(session, monkeypatch)
    session.choose("batch_size", 9)
    assert (submitted, session.screen.pending, session.prediction.settings) == ([], "", {"batch_size": 9})


def test_a_loop_found_steady_is_predicted_in_two_steps_where_it_differs_in_numbers_only():
    session = make(width=[16, 32])
    assert len(predicted(session, batch_size=4).steps) == 3
    assert len(predicted(session, batch_size=5).steps) == 3  # the number may matter
    assert len(predicted(session, batch_size=6).steps) == 2
    assert session.prediction.peak_allocated == predict(train, batch_size=6).peak_allocated
    assert len(predicted(session, width=32).steps) == 3


def test_a_loop_that_takes_turns_for_two_unlike_numbers_is_predicted_whole_though_it_is_steady_for_two_alike():
    def turns(device, *, first=4, second=4, batch_size=1):
        for step in range(2 * MOST_STEPS):
            batch = torch.empty((second if step % 2 else first) * batch_size * 2**20, device=device)
            yield batch[0]
            del batch

    session = make(turns, first=(1, 64), second=(1, 64), batch_size=(1, 4))
    for alike in (4, 8):
        assert len(predicted(session, first=alike, second=alike).steps) == 3
    assert len(predicted(session, second=2).steps) == MOST_STEPS
    assert len(predicted(session, batch_size=2).steps) == MOST_STEPS


def test_between_two_that_are_known_the_picture_is_there_at_once_and_never_kept(monkeypatch):
    session = make()
    predicted(session, batch_size=1)
    last = predicted(session, batch_size=64)
    monkeypatch.setattr(session._worker, "submit", lambda *given, **how: None)
    session.choose("batch_size", 32)
    screen = session.screen
    picture = screen.picture()
    assert picture["origin"] == "about this, until it is predicted exactly for a T4"
    assert picture["heading"] == "batch 32"
    assert screen.sentence.startswith("About this, until it is predicted exactly: predicted for a T4: peak ")
    assert session.prediction is last
    assert screen.view.trace is last  # what can be taken away
    assert screen.nearly.trace.source == "about"
    assert known(session) == {(1, False), (64, False)}
    monkeypatch.undo()
    assert predicted(session).source == "predicted"
    assert screen.nearly is None
    assert screen.picture()["origin"] == "predicted for a T4"
    assert "about this" not in screen.sentence.lower()


def test_an_older_prediction_does_not_take_the_place_of_what_is_nearly_right():
    slow = Slow()
    session = make(slow)
    slow.step.release(6)  # three steps each
    predicted(session, batch_size=1)
    predicted(session, batch_size=64)
    session._forecast._steady.clear()
    drawn = pictures(session)
    while slow.step.acquire(blocking=False):  # with a step that they have left, 8 would go on before 9 is chosen
        pass
    slow.in_step.clear()
    session.choose("batch_size", 8)
    assert slow.in_step.wait(SOON)
    session.choose("batch_size", 9)  # while 8 is being predicted
    slow.step.release(20)
    session._worker._latest.result(SOON)
    assert [heading for heading, _ in drawn] == ["batch 8", *["batch 9"] * (len(drawn) - 1)]
    assert [source for _, source in drawn[:2]] == ["about", "about"]
    assert drawn[-1] == ("batch 9", "predicted")
    assert session.prediction.settings["batch_size"] == 9
    assert (8, False) in known(session)


def test_while_nothing_like_it_is_known_older_predictions_are_shown_on_the_way():
    slow = Slow()
    session = make(slow)
    session.choose("batch_size", 16)
    assert slow.in_step.wait(SOON)
    session.choose("batch_size", 17)
    drawn = pictures(session)
    slow.step.release(20)
    session._worker._latest.result(SOON)
    assert drawn[0] == ("batch 16", "predicted")
    assert drawn[-1] == ("batch 17", "predicted")


def test_nothing_is_predicted_ahead_before_a_panel_is_shown(monkeypatch):
    monkeypatch.setattr(jobs, "REST", 0.01)
    session = make()
    predicted(session)
    wait_for(lambda: session._worker._thread is None)
    assert known(session) == {(8, False)}


def test_at_rest_the_ends_and_the_neighbours_are_predicted_and_then_the_thread_ends(monkeypatch):
    monkeypatch.setattr(jobs, "REST", 0.01)
    session = make(compiled=bool)
    session.predict()
    before = session.screen.sentence
    session.look_ahead()
    wait_for(lambda: session._worker._thread is None)
    sizes = {size for size, _ in known(session)}
    assert {1, 64, 4, 5, 6, 7, 8, 9, 10, 11, 12} <= sizes
    assert session.prediction.settings["batch_size"] == 8  # none of them is shown
    submitted = count_jobs(session, monkeypatch)
    for size in (9, 8, 64, 1):
        session.choose("batch_size", size)
    session.choose("batch_size", 8)
    session.choose("compiled", True)
    assert submitted == []
    assert before != session.screen.sentence


def test_no_more_time_than_so_much_is_spent_ahead(monkeypatch):
    monkeypatch.setattr(jobs, "REST", 0.01)
    monkeypatch.setattr(forecast, "SECONDS_AHEAD", 0.0)
    session = make()
    predicted(session)
    session.look_ahead()
    wait_for(lambda: session._worker._thread is None)
    assert known(session) == {(8, False)}


def greedy(device, *, batch_size=4):
    import torch

    while True:
        kept = torch.empty(batch_size * 2**28, device=device)
        yield kept[0]
        del kept


def test_a_slider_whose_end_does_not_fit_is_known_all_the_way_and_runs_out_where_the_card_does(monkeypatch):
    monkeypatch.setattr(jobs, "REST", 0.01)
    session = make(greedy)
    predicted(session)
    session.look_ahead()
    wait_for(lambda: session._worker._thread is None)
    assert {(64, False), (64, True)} <= known(session)
    monkeypatch.setattr(session._worker, "submit", lambda *given, **how: None)
    session.choose("batch_size", 14)
    assert "predicted for a T4: peak 14.0 GiB" in session.screen.sentence
    session.choose("batch_size", 20)
    assert "About this, until it is predicted exactly: predicted for a T4: out of memory" in session.screen.sentence


def test_where_memory_runs_out_the_panel_says_how_much_it_would_take_once_that_is_known():
    session = make(greedy)
    failed = predicted(session, batch_size=20)
    assert failed.oom
    assert session.screen.view.outline is None
    session.look_ahead()
    wait_for(lambda: "With room enough it would take 20.0 GiB. PyTorch would say" in session.screen.sentence)
    view = session.screen.view
    assert (view.trace, view.outline.peak_allocated, view.outline.oom) == (failed, 20 * 2**30, None)
    assert predicted(session, batch_size=8).oom is None
    assert session.screen.view.outline is None
    session.choose("batch_size", 20)  # and at once when it is back
    assert session.screen.view == view


def test_what_another_setting_would_take_is_not_told_of_the_one_on_show():
    session = make(greedy)
    predicted(session, batch_size=20)
    fits = predicted(session, batch_size=8)
    endless = Case({"batch_size": 20}, session.model, "T4", is_endless=True)
    session._forecast._predict(endless, True, jobs.Stopping())
    assert (session.screen.view.trace, session.screen.view.outline) == (fits, None)


def test_after_a_card_was_chosen_others_are_predicted_ahead_the_nearest_first_until_a_slider_moves():
    session = make()

    def ahead():
        case = Case(dict(session.screen.settings), session.model, session.gpu)
        return [(case.gpu, case.chosen["batch_size"]) for case in islice(session._forecast._candidates(case), 4)]

    assert ahead() == [("T4", 8), ("T4", 1), ("T4", 64), ("T4", 9)]
    session.choose_card("L4")
    assert ahead() == [("L4", 8), ("RTX PRO 6000", 8), ("A10", 8), ("RTX 6000 Ada", 8)]
    session.choose("batch_size", 9)
    assert ahead() == [("L4", 9), ("L4", 1), ("L4", 64), ("L4", 10)]
    session.stop()


@pytest.mark.parametrize("act", [lambda session: session.choose_card("L4"), lambda session: session.start()])
def test_what_is_ahead_ends_when_something_else_is_chosen_or_a_run_begins(monkeypatch, act):
    monkeypatch.setattr(jobs, "REST", 0.01)
    slow = Slow()
    session = make(slow)
    slow.step.release(3)
    predicted(session)
    slow.in_step.clear()
    session.look_ahead()
    wait_for(lambda: getattr(session._worker._current, "is_idle", False) and slow.in_step.is_set())
    idle = session._worker._current
    act(session)
    assert idle.stopping.is_set()
    session.hold()
    slow.step.release(100)
    session._worker._latest.result(SOON)


def test_a_case_that_is_predicted_ahead_and_asked_for_is_shown(monkeypatch):
    monkeypatch.setattr(jobs, "REST", 0.01)
    slow = Slow()
    session = make(slow)
    slow.step.release(3)
    predicted(session)
    slow.in_step.clear()
    session.look_ahead()
    assert slow.in_step.wait(SOON)
    idle = session._worker._current
    session.choose("batch_size", 1)  # the first that is ahead
    assert session._worker._latest is idle
    assert not idle.stopping.is_set()
    slow.step.release(3)
    idle.result(SOON)
    assert session.prediction.settings["batch_size"] == 1
    session.hold()


def test_a_slider_that_is_moved_as_soon_as_it_is_shown_follows_with_what_is_predicted_ahead(monkeypatch):
    slow = Slow()
    session = make(slow)
    slow.step.release(3)
    predicted(session)
    slow.in_step.clear()
    monkeypatch.setattr(jobs, "REST", SOON)  # that is not waited for
    session.look_ahead(at_once=True)
    assert slow.in_step.wait(SOON)
    session.choose("batch_size", 20)  # while another is being predicted that will say something of it
    asked = session._worker._latest
    slow.step.release(2)
    wait_for(lambda: session.screen.nearly is not None)
    assert session.screen.nearly.heading == "batch 20"
    assert known(session) == {(8, False), (1, False)}
    session.choose("batch_size", 30)
    assert session.screen.nearly.heading == session.screen.picture()["heading"] == "batch 30"
    session.hold()
    slow.step.release(100)
    wait_for(lambda: session.screen.pending == "")
    assert asked.done()
    monkeypatch.setattr(jobs, "REST", 0.01)
    session._worker.rest(at_once=True)  # or its thread would rest for as long as that


def test_a_cell_holds_what_is_ahead_and_forgets_for_it_may_change_what_train_reads(monkeypatch):
    size = SimpleNamespace(width=16)

    def reading(device, *, batch_size=8):
        yield from train(device, batch_size=batch_size, width=size.width)

    session = make(reading)
    before = predicted(session).peak_allocated
    size.width = 64
    session.hold()
    session.look_ahead()
    session.choose("batch_size", 9)
    session.choose("batch_size", 8)
    wait_for(lambda: session.screen.pending == "")
    assert session.prediction.peak_allocated > before


class Shell:
    """The part of IPython's shell that panels need."""

    def __init__(self):
        self.callbacks = {"pre_run_cell": [], "post_run_cell": []}
        self.events = self
        self.parent_header = {}

    def register(self, event, function):
        if function not in self.callbacks[event]:
            self.callbacks[event].append(function)

    def run(self, cell, time, work):
        self.parent_header = {"metadata": {"cellId": cell}, "header": {"msg_id": time}}
        for happens in self.callbacks["pre_run_cell"]:
            happens(None)
        work()
        for happens in self.callbacks["post_run_cell"]:
            happens(None)


@pytest.fixture
def shell(monkeypatch):
    made = Shell()
    monkeypatch.setattr("IPython.get_ipython", lambda: made)
    monkeypatch.setattr("memlab.lab.elements.display", lambda data, raw: None)
    monkeypatch.setattr(registry, "_shown", {})
    return made


def test_a_panel_looks_ahead_between_the_cells(shell):
    lab, held = Lab(train, batch_size=(1, 64), device="cpu"), []
    shell.run("a", "1", lab._ipython_display_)
    assert lab.session._forecast._looks_ahead
    shell.run("b", "2", lambda: held.append(lab.session._forecast._looks_ahead))
    assert held == [False]
    lab.close()
    shell.run("b", "3", lambda: None)
    assert not lab.session._forecast._looks_ahead


def test_the_panel_that_a_cell_shows_looks_ahead_at_once_and_others_after_a_pause(shell, monkeypatch):
    first, second = (Lab(train, batch_size=(1, 64), device="cpu") for _ in range(2))
    looked = []
    for lab in (first, second):
        monkeypatch.setattr(lab.session, "look_ahead", lambda *, at_once, lab=lab: looked.append((lab, at_once)))
    shell.run("a", "1", first._ipython_display_)
    shell.run("b", "2", second._ipython_display_)
    assert looked == [(first, True), (first, False), (second, True)]


def test_what_was_predicted_while_a_cell_ran_is_not_what_the_cell_has_made_of_the_loop(shell):
    width = [8]

    def train(device, *, batch_size=8):
        yield torch.nn.Linear(width[0], 1, device=device)(torch.zeros(batch_size, width[0], device=device)).sum()

    lab = Lab(train, batch_size=(1, 64), device="cpu")
    lab.session._forecast._next_ahead = lambda: None

    def peak():
        if job := lab.session.predict():
            job.result()
        return lab.session.prediction.peak_allocated

    shell.run("a", "1", lab._ipython_display_)
    before = []
    shell.run("b", "2", lambda: [before.append(peak()), width.__setitem__(0, 100_000)])
    assert peak() > before[0]


def test_a_panel_made_again_by_its_cell_closes_the_one_before_and_no_other(shell):
    first, second, other, again = (Lab(train, batch_size=(1, 64), device="cpu") for _ in range(4))
    shell.run("a", "1", lambda: [first._ipython_display_(), second._ipython_display_()])
    shell.run("b", "2", other._ipython_display_)
    assert all(lab._panel.comm is not None for lab in (first, second, other))
    shell.run("a", "3", again._ipython_display_)
    assert first._panel.comm is second._panel.comm is None
    assert other._panel.comm is not None
    shell.run("a", "4", again._ipython_display_)  # the same once more
    assert again._panel.comm is not None
    shell.run("c", "5", first._ipython_display_)
    assert first._panel.comm is not None  # it may be shown again


def test_twenty_panels_predicted_and_dropped_leave_no_thread(monkeypatch):
    monkeypatch.setattr(jobs, "REST", 0.01)
    sessions = []
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.startswith("memlab lab")])
    for _ in range(20):
        session = make()
        predicted(session)
        sessions.append(weakref.ref(session))
    del session
    wait_for(lambda: not [t for t in threading.enumerate() if t.name.startswith("memlab lab")])
    gc.collect()
    assert [ref for ref in sessions if ref() is not None] == []


def gpt(device, *, batch_size=2, context=32, width=32):
    import torch

    model = GPT(depth=2, width=width, heads=2, context=context, vocabulary=64).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        tokens = torch.zeros(batch_size, context, dtype=torch.int64, device=device)
        loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def test_remembered_predictions_are_bounded_in_bytes_and_the_longest_unused_goes():
    trace = predict(train)
    one = Remembered()
    cases = [Case({"batch_size": size}, "", "T4") for size in range(5)]
    one.put(cases[0], Known(trace, "warned"))
    assert one.get(cases[0].key) == (trace, "warned")
    assert isinstance(one.get(cases[0].key).trace, Trace)
    kept = Remembered(most_bytes=int(3.5 * one.nbytes))
    for case in cases[:3]:
        kept.put(case, Known(trace, ""))
    kept.put(cases[2], Known(trace, ""))  # again, in its own place
    assert kept.get(cases[0].key) is not None  # so it is the last to go
    kept.put(cases[3], Known(trace, ""))
    assert [case.key in kept for case in cases] == [True, False, True, True, False]
    assert kept.nbytes <= 3.5 * one.nbytes
    kept.forget()
    assert (kept.nbytes, cases[0].key in kept) == (0, False)


def test_true_one_and_one_point_nought_are_three_cases():
    assert len({Case({"x": value}, "", "T4").key for value in (1, 1.0, True, "1")}) == 4
