"""The panel without a browser: its widgets do what a session can, and show what it says."""

import gc
import html
import importlib
import json
import re
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import ipywidgets as widgets
import matplotlib
import pytest
from PIL import ImageFont

from memlab import Guess
from memlab.errors import BadTrain, BadValue
from memlab.lab import Lab, panel
from memlab.lab.picture import Picture
from memlab.lab.questions import questions
from memlab.lab.screen import View
from memlab.vgpu import CARDS
from tests.lab.loops import Slow, SlowToRun, train
from tests.waiting import SOON, wait_for

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
FONT = ImageFont.truetype(FONTS / "DejaVuSans.ttf", 14)  # the widest of the usual system fonts


def make(train=train, **options):
    return Lab(train, **{"batch_size": (1, 64), "device": "cpu", "steps": 5, **options})


def shown(lab, name):
    """The text of one of the panel's parts."""
    return html.unescape(re.sub("<[^>]*>", "", lab._texts[name].value))


def drawn(lab):
    """The step that the browser is given to draw."""
    return lab._picture.shown


def button(lab, name):
    for widget in all_widgets(lab._panel):
        if getattr(widget, "description", "") == name:
            return widget
    raise AssertionError(f"no button {name}")


def test_before_anything_happens_the_panel_says_what_can():
    lab = make(title="Mine")
    assert lab.title == "Mine"
    assert lab.trace is None
    assert shown(lab, "status") == "Ready: Run trains 5 steps."
    assert shown(lab, "sentence").startswith("Move a slider to see")


def test_what_is_shown_last_is_drawn_last_whoever_shows_it(monkeypatch):
    """A replay, in the worker's thread, and a new budget, in the kernel's own."""
    lab, is_drawing, goes_on = make(), threading.Event(), threading.Event()
    lab._build()
    lab.session.predict()
    wait_for(lambda: drawn(lab) is not None)
    of_step = View.to_plain

    def slow(view, **options):
        if threading.current_thread().name == "slow":
            is_drawing.set()
            goes_on.wait(SOON)
        return of_step(view, **options)

    monkeypatch.setattr(View, "to_plain", slow)
    screen = lab.session.screen
    first, second = (replace(screen.view, budget=budget) for budget in (1, 2))
    one = threading.Thread(target=screen.look_at, args=(first,), name="slow")
    other = threading.Thread(target=screen.look_at, args=(second,))
    one.start()
    assert is_drawing.wait(SOON)
    other.start()
    other.join(0.2)  # without a turn it would draw now, and the first after it
    goes_on.set()
    one.join()
    other.join()
    assert drawn(lab) == screen.picture()


def test_run_moves_the_controls_shows_the_picture_and_gives_the_trace():
    lab = make(width=[16, 32], compiled=bool)
    trace = lab.run(batch_size=4, width=32, compiled=True)
    assert trace is lab.trace
    assert {name: control.value for name, control in lab._controls.items()} == {
        "batch_size": 4,
        "width": 32,
        "compiled": True,
    }
    assert drawn(lab)["trace"] == trace.to_plain()
    assert drawn(lab)["heading"] == "batch 4 · width 32 · compiled on"
    assert lab._picture.run["losses"] == list(trace.losses)
    assert lab._picture.sentence == lab.session.screen.sentence
    assert trace.sentence[1:] in lab._picture.sentence
    assert shown(lab, "sentence") == lab._picture.sentence  # for who has no browser module
    assert shown(lab, "status") == "Done after 5 of 5 steps. Ready."
    assert lab.traces == (trace,)
    assert lab.session.prediction is None  # the controls moved, and no prediction of that was shown


def test_run_shows_its_own_model_and_its_menu_says_so():
    lab = make(models={"Wide": {"width": 512}})
    assert lab._model_menu.value == "Wide"
    lab.run()
    assert lab._model_menu.value == "the one that Run trains"
    assert drawn(lab)["model"] == ""


def test_one_button_runs_and_stops():
    slow = SlowToRun()
    lab = make(slow, steps=100)
    go = button(lab, "Run")
    go.click()
    assert go.description == "Stop"
    slow.step.release()
    wait_for(lambda: re.fullmatch(r"Stop · 1 of 100 · [\d.]+ (us|ms|s)", go.description))
    assert lab._picture.run["going"]
    go.click()
    assert shown(lab, "status") == "Stopping."
    slow.step.release()
    wait_for(lambda: re.fullmatch(r"Stopped after [12] of 100 steps\. Ready\.", shown(lab, "status")))
    assert lab.trace is not None
    wait_for(lambda: go.description == "Run")
    assert not lab._picture.run["going"]


def test_the_picture_has_the_lines_of_the_loop():
    code = make()._picture.code
    assert code["lines"][0] == 'def train(device, *, batch_size=8, width=16, compiled=False, optimizer="SGD"):'
    assert (code["lines"][-1], code["first"]) == ("        yield loss", train.__code__.co_firstlineno)
    assert make(Slow())._picture.code is None  # an object has none
    nested = test_an_error_comes_out_of_run_and_stands_on_the_panel.__code__.co_firstlineno

    def here(device, *, batch_size=8):
        yield 1.0

    assert make(here)._picture.code["lines"] == ["def here(device, *, batch_size=8):", "    yield 1.0"]
    assert make(here)._picture.code["first"] < nested


def test_the_line_of_an_event_is_one_of_those_of_the_loop():
    lab = make()
    lab.run()
    events, code = drawn(lab)["trace"]["events"], lab._picture.code
    lines = {code["lines"][line - code["first"]].strip() for line in events["line"] if line}
    assert "loss.backward()" in lines
    assert lines <= {line.strip() for line in code["lines"][4:]}


def test_a_moved_slider_shows_a_prediction():
    lab = make()
    lab._controls["batch_size"].value = 32
    wait_for(lambda: "Predicted for a T4" in shown(lab, "sentence"))
    assert drawn(lab)["origin"] == "predicted for a T4"
    assert drawn(lab)["trace"] == lab.session.prediction.to_plain()
    assert lab.trace is None


def test_what_is_about_to_be_replaced_is_dimmed_and_what_is_nearly_right_is_not():
    slow = Slow()
    lab = make(slow)
    slow.step.release(6)  # three steps each
    for batch in (1, 64):
        lab._controls["batch_size"].value = batch
        lab.session._worker._latest.result(SOON)
        assert not lab._picture.stale
    lab._card_menu.value = "L4"  # of which nothing is known
    assert (lab._picture.stale, drawn(lab)["origin"]) == (True, "predicted for a T4")
    slow.step.release(2)
    lab.session._worker._latest.result(SOON)
    assert (lab._picture.stale, drawn(lab)["origin"]) == (False, "predicted for an L4")
    lab._card_menu.value = "T4"
    lab._controls["batch_size"].value = 32
    assert drawn(lab)["origin"] == "about this, until it is predicted exactly for a T4"
    assert not lab._picture.stale
    slow.step.release(2)
    lab.session._worker._latest.result(SOON)
    assert (lab._picture.stale, drawn(lab)["origin"]) == (False, "predicted for a T4")


def test_a_slider_moved_during_a_run_counts_for_the_next():
    slow = SlowToRun()
    lab = make(slow, steps=2)
    button(lab, "Run").click()
    assert slow.in_step.wait(SOON)
    lab._controls["batch_size"].value = 32
    assert shown(lab, "note") == "For the next run: batch size 32."
    slow.step.release(2)
    wait_for(lambda: lab.trace is not None)
    assert lab.trace.settings["batch_size"] == 8


def test_a_described_card_stands_in_the_menu_beside_the_others():
    lab = make(gpu="8 GiB sm_86")
    assert (lab._card_menu.value, len(lab._card_menu.options)) == ("8 GiB sm_86", len(CARDS) + 1)
    lab._card_menu.value = "L4"
    lab._card_menu.value = "8 GiB sm_86"
    wait_for(lambda: "Predicted for an 8 GiB sm_86" in shown(lab, "sentence"))


def test_another_card_in_the_menu_is_predicted_at_once():
    lab = make(gpu="h100")
    assert lab._card_menu.value == "H100"
    lab._card_menu.value = "L4"
    wait_for(lambda: "Predicted for an L4" in shown(lab, "sentence"))


def test_a_card_and_what_pytorch_can_have_of_it_can_be_read_in_the_menu():
    labels = [label for label, _ in make()._card_menu.options]
    assert "T4: 14.4 GiB" in labels
    assert max(map(FONT.getlength, labels)) < 190  # pixels that are left for it on a projector, 1280 wide


def test_a_menu_has_the_models_and_one_more():
    lab = make(models={"Wide": {"width": 512}})
    assert lab._model_menu.options == ("Wide", "the one that Run trains")
    lab._model_menu.value = "the one that Run trains"
    wait_for(lambda: lab.session.prediction is not None)
    assert lab.session.prediction.settings["width"] == 16
    assert lab._model_menu.layout.display != "none"
    assert make()._model_menu.layout.display == "none"


def test_what_is_typed_and_cannot_be_is_refused_on_the_panel():
    lab = make()
    lab._budget_box.value = "15 GB"
    assert shown(lab, "note") == "From the next run on: a budget of 14.0 GiB."
    lab._budget_box.value = "lots"
    assert 'role="alert"' in lab._texts["note"].value
    button(lab, "Run").click()
    assert "'lots' is not a number of bytes" in shown(lab, "note")
    assert not lab.session.busy
    lab._controls["batch_size"].widget.children[1].value = 1000
    assert "batch size 1000 is out of range" in shown(lab, "note")


def test_what_cannot_be_put_on_a_panel_is_told_at_once():
    with pytest.raises(BadValue, match="width 16 is out of range"):
        make(width=(32, 64))
    with pytest.raises(BadTrain, match="3 is not a function"):
        Lab(3)


def test_an_error_comes_out_of_run_and_stands_on_the_panel():
    def broken(device, *, batch_size=8):
        yield 1.0
        raise RuntimeError("mine")

    lab = make(broken)
    with pytest.raises(RuntimeError, match="mine"):
        lab.run()
    assert 'role="alert"' in lab._texts["status"].value


def displayed(monkeypatch, lab):
    """Return the data that a notebook gets for the panel, by MIME type."""
    given = []
    monkeypatch.setattr("memlab.lab.elements.display", lambda data, raw: given.append(data))
    lab._ipython_display_()
    return given[0]


def test_a_saved_notebook_has_the_picture_of_the_first_prediction(monkeypatch):
    lab = make()
    data = displayed(monkeypatch, lab)
    assert f'<img alt="{html.escape(lab.session.prediction.sentence)}"' in data["text/html"]
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == lab._panel.model_id
    assert data["text/plain"].startswith("A memlab Lab: run this notebook in Jupyter")
    assert len(data["text/html"]) < 50_000
    assert displayed(monkeypatch, make())["text/html"] == data["text/html"]  # no clock, no chance


def test_a_panel_whose_loop_cannot_be_predicted_is_shown_all_the_same(monkeypatch):
    def unpredictable(device, *, batch_size=8):
        raise RuntimeError("mine")
        yield

    lab = make(unpredictable)
    assert "text/html" not in displayed(monkeypatch, lab)
    assert shown(lab, "note").startswith("No prediction: ")


def test_a_panel_shown_during_a_run_does_not_wait_for_it(monkeypatch):
    slow = Slow()
    lab = make(slow, steps=100)
    button(lab, "Run").click()
    assert "text/html" not in displayed(monkeypatch, lab)
    assert lab._still.value == ""
    lab.stop()
    slow.step.release()


def message(lab, **content):
    """The browser sends something that is no value of a trait."""
    lab._picture._handle_custom_msg(content, [])


@pytest.fixture
def stills(monkeypatch):
    """The steps that matplotlib has drawn."""
    made, draw = [], panel.picture
    monkeypatch.setattr(panel, "picture", lambda view: made.append(view.heading) or draw(view))
    return made


def test_without_a_browser_module_a_still_picture_follows_the_controls(monkeypatch, stills):
    lab = make()
    displayed(monkeypatch, lab)
    assert stills == ["batch 8"]
    assert f'<img alt="{html.escape(lab.session.prediction.sentence)}"' in lab._still.value
    before = lab._still.value
    lab._controls["batch_size"].value = 32
    lab.session._worker._latest.result(SOON)
    assert stills[-1] == "batch 32"
    assert f'<img alt="{html.escape(lab.session.prediction.sentence)}"' in lab._still.value != before
    lab._go.click()
    wait_for(lambda: lab.trace is not None)
    assert f'<img alt="{html.escape(lab.trace.sentence)}"' in lab._still.value


def test_what_is_nearly_right_is_no_still_picture(monkeypatch, stills):
    lab = make()
    displayed(monkeypatch, lab)
    lab._is_used = True
    for batch in (1, 64):
        lab._controls["batch_size"].value = batch
        lab.session._worker._latest.result(SOON)
    assert stills[-1] == "batch 64"
    monkeypatch.setattr(lab.session._worker, "submit", lambda *given, **how: None)
    before = list(stills)
    lab._controls["batch_size"].value = 32
    assert drawn(lab)["heading"] == "batch 32"
    assert stills == before


def test_once_a_browser_module_draws_no_still_picture_is_drawn(monkeypatch, stills):
    lab = make()
    displayed(monkeypatch, lab)
    lab._picture.set_state({"is_alive": True})
    before = lab._still.value
    lab._controls["batch_size"].value = 32
    lab.session._worker._latest.result(SOON)
    lab._go.click()
    wait_for(lambda: lab.trace is not None)
    assert drawn(lab)["heading"] == "batch 32"
    assert (stills, lab._still.value) == (["batch 8"], before)


def test_a_panel_that_only_code_moves_draws_no_still_picture(monkeypatch, stills):
    lab = make(models={"Wide": {"width": 64}})
    displayed(monkeypatch, lab)
    lab.run(batch_size=32)
    lab.session.choose("batch_size", 9)
    lab.session.choose_card("L4")
    lab.session.choose_model("Wide")
    lab.session._worker._latest.result(SOON)
    assert (lab._card_menu.value, lab._model_menu.value) == ("L4", "Wide")
    assert stills == ["batch 8 · Wide"]


def test_the_picture_asks_for_a_row_and_for_the_runs_end():
    slow = SlowToRun()
    lab = make(slow, steps=1)
    slow.step.release()
    lab.run(batch_size=32)
    lab._controls["batch_size"].value = 9
    message(lab, bring_back=1)
    assert (lab._controls["batch_size"].value, shown(lab, "status")) == (32, "Ready: Run trains 1 steps.")
    message(lab, bring_back=7)
    message(lab, something="else")
    Guess("How wide?")._ipython_display_()
    message(lab, questions=True)
    assert "How wide?" in dict(lab._picture.questions)
    assert lab._picture.questions == questions()
    assert lab._controls["batch_size"].value == 32
    lab._go.click()
    wait_for(lambda: lab.session.screen.status.text.startswith("Training"))
    message(lab, stop=True)
    assert shown(lab, "status") == "Stopping."
    slow.step.release()
    wait_for(lambda: lab._go.description == "Run")


def test_the_picture_keeps_what_it_is_given():
    """Each trait is sent to the browser, and the module that draws it comes along."""
    wishes = []
    picture = Picture(wishes.append)
    assert (picture.shown, picture.run, picture.rows, picture.code) == (None, None, [], None)
    state = picture.get_state()
    for name in ("shown", "run", "rows", "code", "sentence", "stale", "is_alive"):
        assert name in state
    assert "export default { render }" in state["_esm"]
    picture.shown = {"heading": "batch 8"}
    assert json.loads(picture.get_state()["shown"]) == {"heading": "batch 8"}
    picture._handle_custom_msg({"bring_back": 3}, [])
    assert wishes == [{"bring_back": 3}]


def all_widgets(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from all_widgets(child)


def test_every_control_has_a_name_and_says_what_it_is_for():
    lab = make(width=[16, 32], compiled=bool, models={"Wide": {"optimizer": "AdamW"}})
    shown_only = (widgets.Box, widgets.HTML, Picture)
    controls = [widget for widget in all_widgets(lab._panel) if not isinstance(widget, shown_only)]
    assert len(controls) == 16
    for control in controls:
        assert control.description, control
        assert control.tooltip if control.has_trait("tooltip") else control.description_tooltip, control


def test_reset_moves_every_control_back():
    lab = make(width=[16, 32], budget=2**31, gpu="L4")
    lab._controls["batch_size"].value = 3
    lab._controls["width"].value = 32
    lab._card_menu.value = "H100"
    lab._budget_box.value = "none"
    button(lab, "Reset").click()
    assert lab.session.screen.settings == {"batch_size": 8, "width": 16}
    assert (lab.session.gpu, lab._card_menu.value) == ("L4", "L4")
    assert lab._budget_box.value == "2147483648 B"
    assert shown(lab, "note") == "From the next run on: a budget of 2.00 GiB."


def test_kept_predictions_and_runs_make_a_table():
    lab = make()
    button(lab, "Keep").click()
    assert "Keep is for predictions" in shown(lab, "note")
    assert lab._picture.rows == []
    for batch in (64, 4):
        lab._controls["batch_size"].value = batch
        lab.session._worker._latest.result(SOON)
        button(lab, "Keep").click()
        assert shown(lab, "note") == ""
    lab.run()
    said = [(row["number"], row["settings"], row["what"]) for row in lab._picture.rows]
    assert said == [
        (1, "batch 64", "predicted, T4"),
        (2, "batch 4", "predicted, T4"),
        (3, "batch 4", "measured"),
    ]
    assert lab._picture.rows[2]["peak"] == lab.trace.peak_allocated
    assert [row["best"] for row in lab._picture.rows] == [True, False, False]


def test_the_best_row_follows_the_budget():
    lab = make()
    peaks = {}
    for batch in (1, 32, 64):
        lab._controls["batch_size"].value = batch
        lab.session._worker._latest.result(SOON)
        peaks[batch] = lab.session.prediction.peak_allocated
        button(lab, "Keep").click()

    def best():
        return [row["number"] for row in lab._picture.rows if row["best"]]

    assert best() == [3]
    lab._budget_box.value = str(peaks[32])
    assert best() == [2]
    lab._budget_box.value = "none"
    assert best() == [3]


def test_the_code_follows_what_is_on_show():
    lab = make()
    box = lab._small_menu._code
    assert box.layout.display == "none"
    button(lab, "Code").value = True
    assert (box.layout.display, box.value) == (None, "There is nothing to take yet: move a slider or press Run.")
    lab.run(batch_size=4)
    assert box.value == "from memlab import measure\n\nmeasure(train, steps=5, batch_size=4)"


def test_links_to_save_are_there_until_something_else_is_on_show():
    lab = make()
    button(lab, "Save").click()
    assert "nothing to take" in lab._small_menu._links.value
    lab.run(batch_size=4)
    button(lab, "Save").click()
    links = lab._small_menu._links.value
    assert [name for name in ("batch-4.png", "batch-4.csv", "runs.csv") if name not in links] == []
    lab.run(batch_size=5)
    assert lab._small_menu._links.value == ""


def test_workspace_is_hidden_and_shown_again_and_the_peak_counts_it_all_the_same():
    lab = make()
    lab._controls["batch_size"].value = 32
    lab.session._worker._latest.result(SOON)
    before = drawn(lab)
    assert before["hidden"] == []
    button(lab, "hide workspace").value = True
    assert drawn(lab) == before | {"hidden": ["workspace"]}
    lab._controls["batch_size"].value = 9
    lab.session._worker._latest.result(SOON)
    assert (drawn(lab)["heading"], drawn(lab)["hidden"]) == ("batch 9", ["workspace"])
    button(lab, "hide workspace").value = False
    lab._controls["batch_size"].value = 32
    assert drawn(lab) == before


def registered():
    """The widgets that ipywidgets keeps."""
    module = importlib.import_module("ipywidgets.widgets.widget")
    return dict(module._instances if hasattr(module, "_instances") else widgets.Widget.widgets)  # 8, and 7


def test_a_panel_that_nobody_shows_leaves_nothing():
    before = registered()
    lab = make()
    lab.run(batch_size=4)
    gone = weakref.ref(lab)
    del lab
    wait_for(lambda: gc.collect() is not None and gone() is None)
    assert registered() == before


def test_a_panel_that_is_closed_leaves_no_widgets():
    before = registered()
    lab = make(width=[16, 32], compiled=bool)
    assert lab._panel.comm is not None
    lab.close()
    assert registered() == before


def test_a_panel_that_is_shown_after_a_run_shows_it():
    lab = make()
    lab.run(batch_size=4)
    assert lab._controls["batch_size"].value == 4
    assert (drawn(lab)["heading"], len(lab._picture.run["losses"])) == ("batch 4", 5)
    assert ([row["number"] for row in lab._picture.rows], lab._go.description) == ([1], "Run")
    button(lab, "Reset").click()
    assert lab._controls["batch_size"].value == 8
