"""Runs recorded elsewhere, shown again in the panel."""

from dataclasses import replace

import pytest

from memlab.errors import MemlabError
from memlab.lab import recorded
from tests.lab.loops import SlowToRun
from tests.lab.test_panel import button, drawn, make, shown
from tests.waiting import wait_for


def none(refusal):
    """No recording here is refused."""
    raise refusal


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A panel for which two runs of another device were recorded."""
    monkeypatch.setattr(recorded, "folder", lambda: tmp_path)
    here = make(title="A panel: of mine")
    for batch_size in (4, 64):
        here.run(batch_size=batch_size)
    there = [replace(trace, device="NVIDIA H200", peak_reserved=2**31) for trace in here.traces]
    recorded.keep(here.title, there, tmp_path)
    return make(title="A panel: of mine")


def test_what_was_kept_is_read_again_for_this_panel_alone(lab, tmp_path):
    assert [trace.settings["batch_size"] for trace in recorded.runs("A panel: of mine", none)] == [4, 64]
    assert recorded.runs("A panel", none) == recorded.runs("Another", none) == []
    recorded.keep(lab.title, [lab.run()], tmp_path)
    recorded.keep(lab.title, [lab.run()], tmp_path)
    assert len(recorded.runs(lab.title, none)) == 3  # two of the H200, and the last of this device


def test_the_menu_replays_a_run_with_its_device(lab):
    menu = lab._replay_menu
    assert menu.layout.display is None
    labels = [label for label, _ in menu.options]
    assert labels[1:] == [
        f"NVIDIA H200, batch size {size}, width 16, compiled False, optimizer SGD" for size in (4, 64)
    ]
    menu.value = lab.session.recorded[1]
    wait_for(lambda: "Recorded with torch" in shown(lab, "sentence"))
    assert "on NVIDIA H200, batch size 64" in shown(lab, "sentence")
    assert "PyTorch reserved 2.00 GiB." in shown(lab, "sentence")
    assert (drawn(lab)["heading"], drawn(lab)["origin"]) == ("batch 64", "recorded on NVIDIA H200")
    run, (_, recorded) = lab._picture.run, lab.session.recorded
    assert (run["name"], run["losses"]) == ("recorded on NVIDIA H200", list(recorded.losses))
    assert (run["count"], run["going"], run["earlier"]) == (5, False, [])
    assert lab.trace is None


def test_a_moved_slider_and_a_run_end_the_replay(lab):
    lab._replay_menu.value = lab.session.recorded[0]
    wait_for(lambda: lab._picture.run)
    lab._controls["batch_size"].value = 16
    assert lab._replay_menu.value is None
    wait_for(lambda: drawn(lab)["origin"] == "predicted for a T4")
    assert lab._picture.run is None
    lab._replay_menu.value = lab.session.recorded[0]
    lab.run()
    assert lab._replay_menu.value is None
    assert drawn(lab)["origin"].startswith("measured on ")
    assert lab._picture.run["name"] == "last run, batch 16"


def test_a_run_that_is_going_on_is_not_drawn_over(lab):
    train = SlowToRun()
    busy = make(train, title=lab.title)
    job = busy.session.start()
    train.in_step.wait()
    busy._replay_menu.value = lab.session.recorded[0]
    assert "A run is going on: press Stop" in shown(busy, "note")
    assert busy._replay_menu.value is None
    with pytest.raises(MemlabError, match="A run is going on"):
        busy.replay(lab.session.recorded[0])
    busy.stop()
    train.step.release(5)
    job.result()


def test_without_recordings_there_is_no_menu():
    assert make(title="never recorded")._replay_menu.layout.display == "none"


def test_another_file_is_left_out_and_that_is_said(lab, tmp_path):
    (tmp_path / "a-panel-of-mine--x-0.json").write_text("{}")
    (tmp_path / "a-panel-of-mine--x-1.json").write_bytes(b"\xff")
    again = make(title=lab.title)
    assert len(again.session.recorded) == 2
    assert "The recorded run a-panel-of-mine--x-1.json is left out: " in shown(again, "note")


@pytest.mark.parametrize("fault", [{"events": None}, {"notes": None}])
def test_a_recorded_run_that_cannot_be_drawn_is_refused_and_the_panel_lives_on(lab, fault):
    lab.run()
    before = drawn(lab), lab._picture.run, lab.session.screen.view
    broken = replace(lab.session.recorded[0], **fault)
    lab.replay(broken)
    wait_for(lambda: "This recorded run cannot be drawn: TypeError" in shown(lab, "note"))
    assert (drawn(lab), lab._picture.run, lab.session.screen.view) == before
    button(lab, "Save").click()  # of what is still on show
    assert "batch-8.png" in lab._small_menu._links.value
    lab.replay(lab.session.recorded[1])
    wait_for(lambda: "Recorded with torch" in shown(lab, "sentence"))
