"""The panel without a browser: what its buttons and boxes do, and what it says."""

import gc
import html
import re
import threading
import time

import pytest
import torch
from torch import nn

from memlab import logbook
from memlab.errors import BadTrain, BadValue
from memlab.lab import Lab
from memlab.units import format_bytes

SOON = 20


def train(device, *, batch_size=8, width=16, compiled=False, optimizer="SGD"):
    model = nn.Linear(width, width).to(device)
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    while True:
        loss = model(torch.ones(batch_size, width, device=device)).square().mean()
        loss.backward()
        steps.step()
        steps.zero_grad()
        yield loss


def make(train=train, **options):
    return Lab(train, **{"batch_size": (1, 64), "device": "cpu", "steps": 5, **options})


def said(widget):
    return html.unescape(re.sub("<[^>]*>", "", widget.value))


def wait_for(condition):
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def button(lab, name):
    widgets = [lab._panel]
    while widgets:
        widget = widgets.pop()
        if getattr(widget, "description", "") == name:
            return widget
        widgets += getattr(widget, "children", ())
    raise AssertionError(f"no button {name}")


class Slow:
    """A train whose steps end when the test says so."""

    def __init__(self):
        self.step = threading.Semaphore(0)
        self.in_step = threading.Event()

    def __call__(self, device, *, batch_size=8):
        while True:
            self.in_step.set()
            assert self.step.acquire(timeout=SOON)
            yield torch.ones(batch_size).sum()


def test_run_trains_with_the_controls_as_they_stand_and_gives_the_trace():
    lab = make(width=[16, 32])
    trace = lab.run(batch_size=4, width=32)
    assert trace is lab.trace
    assert trace.settings == {"batch_size": 4, "width": 32, "compiled": False, "optimizer": "SGD"}
    assert len(trace.steps) == 5
    assert lab.run().settings["width"] == 32  # the menu was moved
    assert lab.run(optimizer="AdamW").settings["optimizer"] == "AdamW"  # no control, passed on


def test_the_pictures_and_the_sentence_are_there_when_a_run_has_ended():
    lab = make()
    trace = lab.run()
    assert trace.sentence in html.unescape(lab._memory.value)
    assert "step 5 of 5" in lab._progress.value
    assert said(lab._sentence).startswith(trace.sentence.capitalize()[0] + trace.sentence[1:])
    assert "bytes of live tensor storages" in said(lab._sentence)
    assert said(lab._status) == "Done after 5 of 5 steps. Ready."


def test_the_second_run_is_compared_with_the_first_and_drawn_over_it():
    lab = make()
    first, second = lab.run(batch_size=8), lab.run(batch_size=64)
    change = second.peak_allocated / first.peak_allocated - 1
    assert f"That is {change:.0%} above the run before; a step takes 8.00 times its arithmetic." in said(lab._sentence)
    assert "the runs before" in lab._memory.value


def test_the_run_button_trains_and_stop_ends_after_the_step_that_is_running():
    slow = Slow()
    lab = make(slow, steps=100)
    button(lab, "Run").click()
    slow.step.release()
    wait_for(lambda: "step 1 of 100" in lab._progress.value)
    button(lab, "Stop").click()
    assert said(lab._status) == "Stopping after this step."
    slow.step.release()
    wait_for(lambda: lab.trace is not None)
    assert len(lab.trace.steps) == 2
    wait_for(lambda: said(lab._status) == "Stopped after 2 of 100 steps. Ready.")


def test_a_loop_that_ends_by_itself_is_said_to_have_ended():
    def short(device, *, batch_size=8):
        yield torch.ones(batch_size).sum()

    lab = make(short)
    assert len(lab.run().steps) == 1
    assert said(lab._status) == "The training loop ended after 1 of 5 steps. Ready."


def test_running_out_of_memory_in_the_last_step_is_no_success():
    def growing(device, *, batch_size=8):
        for size in (8, 4096):
            yield torch.ones(size).sum()

    lab = make(growing, steps=2, budget="1 KiB")
    assert lab.run().oom
    assert said(lab._status) == "Out of memory after 2 of 2 steps. Ready."


def test_a_second_run_ends_the_first():
    slow = Slow()
    lab = make(slow, steps=3)
    button(lab, "Run").click()
    assert slow.in_step.wait(SOON)
    button(lab, "Run").click()
    for _ in range(4):
        slow.step.release()
    wait_for(lambda: len(lab._finished) == 2)
    assert [len(trace.steps) for trace in lab._finished] == [1, 3]


def test_stop_before_start_says_that_nothing_runs():
    lab = make()
    button(lab, "Stop").click()
    assert said(lab._status) == "Nothing is running: press Run to start."


def test_a_slider_moved_during_a_run_counts_for_the_next():
    slow = Slow()
    lab = make(slow, steps=2)
    button(lab, "Run").click()
    assert slow.in_step.wait(SOON)
    lab._controls["batch_size"].value = 32
    assert said(lab._note) == "For the next run: batch size 32."
    for _ in range(2):
        slow.step.release()
    wait_for(lambda: lab.trace is not None)
    assert lab.trace.settings["batch_size"] == 8


def test_the_budget_box_takes_sizes_and_refuses_the_rest():
    lab = make(batch_size=(1, 4096))
    for text, size in (("15 GB", "14.0 GiB"), ("15GiB", "15.0 GiB"), ("16106127360", "15.0 GiB")):
        lab._budget_box.value = text
        assert said(lab._note) == f"From the next run on: a budget of {size}."
    for text in ("none", ""):
        lab._budget_box.value = text
        assert said(lab._note) == "From the next run on: no budget."
    lab._budget_box.value = "lots"
    assert "'lots' is not a number of bytes" in said(lab._note)
    button(lab, "Run").click()
    assert lab.trace is None
    lab._budget_box.value = "10 KiB"
    trace = lab.run(batch_size=4096)
    assert trace.oom.limit == 10240
    assert "Out of memory in other at aten.ones: asked for 256 KiB" in said(lab._sentence)
    assert said(lab._status) == "Out of memory after 1 of 5 steps. Ready."


def test_an_exception_in_the_worker_comes_out_of_run_and_is_told_with_its_line():
    def broken(device, *, batch_size=8):
        yield 1.0
        raise RuntimeError("mine")

    lab = make(broken)
    with pytest.raises(RuntimeError, match="mine"):
        lab.run()
    assert said(lab._status) == "RuntimeError: mine (line 3 of broken). Mend it and press Run again."
    button(lab, "Run").click()
    with pytest.raises(RuntimeError, match="mine"):
        lab._job.result(SOON)


def test_ctrl_c_stops_the_run_and_keeps_what_is_known(monkeypatch):
    slow = Slow()
    lab = make(slow, steps=100)
    for _ in range(3):
        slow.step.release()

    def interrupted(jobs, timeout=None):
        if timeout is None:
            return original(jobs)
        wait_for(lambda: slow.step._value == 0)
        slow.step.release()
        raise KeyboardInterrupt

    from concurrent import futures

    original = futures.wait
    monkeypatch.setattr(futures, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.run()
    assert lab._job.done()
    assert 1 <= len(lab.trace.steps) <= 4


def test_nothing_moves_when_a_setting_is_refused():
    lab = make()
    with pytest.raises(BadValue, match="batch size 65 is out of range"):
        lab.run(batch_size=65)
    with pytest.raises(BadValue, match="no setting 'batchsize'"):
        lab.run(batchsize=4)
    with pytest.raises(BadValue, match="no setting 'x'"):
        lab.run(batch_size=4, x=1)
    assert lab._controls["batch_size"].value == 8
    assert lab.trace is None


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
        (lambda: make(budget="lots"), BadValue, "'lots' is not a number of bytes"),
        (lambda: make(steps=0), BadValue, "steps=0"),
        (lambda: make(device="tpu"), BadValue, "device 'tpu'"),
        (lambda: Lab(3), BadTrain, "3 is not a function"),
        (lambda: Lab(takes_steps), BadTrain, "a setting 'steps', which memlab itself takes"),
    ],
)
def test_what_cannot_be_put_on_a_panel_is_told_at_once(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_runs_leave_no_bytes_behind():
    lab = make()
    lab.run()

    def live():
        gc.collect()
        return sum(type(thing) in (torch.Tensor, nn.Parameter) for thing in gc.get_objects())

    before = live()
    for _ in range(5):
        lab.run(batch_size=64)
    assert live() == before


def test_as_text_the_panel_says_how_to_see_it():
    assert repr(make()._panel).startswith("A memlab Lab: run this notebook in Jupyter")


def test_a_moved_slider_shows_a_prediction_before_anything_trains():
    lab = make()
    lab._controls["batch_size"].value = 32
    wait_for(lambda: "Predicted for a T4" in said(lab._sentence))
    assert "predicted for T4" in lab._memory.value
    assert "T4 has 14.6 GiB" in said(lab._memory)
    assert "PyTorch would reserve" in said(lab._sentence)
    assert lab.trace is None  # nothing has trained
    lab._controls["batch_size"].value = 8
    wait_for(lambda: "the settings before" in said(lab._sentence))


def test_another_card_is_predicted_at_once():
    lab = make(gpu="h100")
    assert lab._card_menu.value == "H100"
    lab._card_menu.value = "L4"
    wait_for(lambda: "Predicted for an L4" in said(lab._sentence))
    with pytest.raises(BadValue, match="gpu 'K80' is not a card"):
        make(gpu="K80")


def test_past_the_cards_capacity_the_panel_says_what_cuda_would():
    def greedy(device, *, gigabytes=1):
        while True:
            kept = [torch.empty(2**28, device=device) for _ in range(gigabytes)]
            yield kept[0][0]

    lab = Lab(greedy, gigabytes=(1, 64), steps=1)
    lab._controls["gigabytes"].value = 40
    wait_for(lambda: "CUDA out of memory. Tried to allocate 1024.00 MiB." in said(lab._sentence))
    assert "out of memory" in said(lab._memory)
    assert "T4: 14.6 GiB" in said(lab._memory)


def test_a_loop_that_cannot_be_predicted_can_still_be_measured():
    def branching(device, *, batch_size=8):
        while True:
            x = torch.ones(batch_size, device=device)
            yield x[x > 0].sum()

    lab = make(branching)
    lab._controls["batch_size"].value = 4
    wait_for(lambda: "No prediction: " in said(lab._note))
    assert "depends on the data" in said(lab._note)
    assert len(lab.run().steps) == 5


def test_a_run_names_what_was_predicted_for_it():
    lab = make()
    lab._controls["batch_size"].value = 16
    wait_for(lambda: "Predicted for a T4" in said(lab._sentence))
    predicted = lab._predicted
    lab.run()
    assert f"Predicted for a T4: {format_bytes(predicted.peak_allocated)}." in said(lab._sentence)
    lab.run(batch_size=2)
    wait_for(lambda: "step, predicted" not in lab._memory.value)


def test_stop_is_for_runs_and_leaves_a_prediction_alone():
    lab = make()
    lab._controls["batch_size"].value = 16
    lab.stop()
    assert "Nothing is running" in said(lab._status)
    wait_for(lambda: "Predicted for a T4" in said(lab._sentence))


def test_a_slider_moved_while_it_trains_does_not_disturb_the_run():
    slow = Slow()
    lab = make(slow, steps=3)
    lab._run_pressed()
    assert slow.in_step.wait(SOON)
    lab._controls["batch_size"].value = 2
    assert "For the next run" in said(lab._note)
    assert lab._predicted is None
    for _ in range(3):
        slow.step.release()
    assert len(lab._job.result(SOON).steps) == 3


def test_every_run_is_logged_and_a_logbook_that_cannot_be_written_stops_none(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "logbook.jsonl"))
    lab = make(title="My panel")
    lab.run(batch_size=3)
    (entry,) = logbook.read()
    assert (entry.title, entry.settings["batch_size"]) == ("My panel", 3)
    (tmp_path / "in_the_way").write_text("")
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "in_the_way" / "logbook.jsonl"))
    assert len(lab.run().steps) == 5
    assert "set MEMLAB_LOGBOOK to a file that can" in said(lab._note)
