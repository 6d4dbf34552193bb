"""A recorded run has what its page needs to play it, and leaves the panel as it was."""

from memlab import Lab, measure, predict
from memlab.lab.checks import OWN_MODEL
from memlab.lab.page import record
from memlab.lab.words import without_workspace
from tests.lab.loops import train


def lab():
    return Lab(train, batch_size=(1, 64), models={"wide": {"width": 64}}, steps=12, title="Record").session


def test_a_run_is_recorded_as_it_was_seen():
    run = record(lab())
    measured = measure(train, steps=12)
    assert run["settings"] == {"batch_size": 8}
    assert run["shown"]["origin"].startswith("recorded on CPU")
    assert run["shown"]["trace"]["events"]["bytes"] == measured.to_plain()["events"]["bytes"]
    assert run["run"]["losses"] == list(measured.losses)
    assert run["run"]["name"] == "recorded run, batch 8"
    assert not run["run"]["going"]
    assert run["xrayed"] == [step.xrayed for step in measured.steps]
    assert run["sentence"].startswith("Peak ")


def test_its_outline_is_what_was_predicted_of_the_same_model():
    outline = record(lab())["shown"]["outline"]["trace"]
    predicted = without_workspace(predict(train, gpu="T4"))
    assert outline["events"]["bytes"] == predicted.to_plain()["events"]["bytes"]


def test_other_settings_are_run_and_the_panel_is_as_it_was():
    session = lab()
    first, other = record(session), record(session, batch_size=32)
    assert other["settings"] == {"batch_size": 32}
    assert other["run"]["name"] == "recorded run, batch 32"
    assert "the run before" not in other["sentence"]  # which a reader may not have played
    assert other["run"]["earlier"] == first["run"]["earlier"] == []
    assert session.screen.settings == {"batch_size": 8}
    assert session.model == "wide" != OWN_MODEL


def test_what_the_model_says_is_kept_from_the_step_on_in_which_it_said_so(monkeypatch):
    said = iter("abcdefgh")
    monkeypatch.setattr("memlab.lab.live.sample", lambda values, is_last=False: next(said))
    samples = record(lab())["samples"]
    assert samples[0] == (0, "")
    assert [text for _, text in samples[1:]][:1] == ["a"]
    steps = [step for step, _ in samples]
    assert steps == sorted(steps)
    assert steps[-1] == 12
