"""The panel without a browser: its widgets do what a session can, and show what it says."""

import gc
import html
import importlib
import re
import weakref

import ipywidgets as widgets
import pytest

from memlab.errors import BadTrain, BadValue
from memlab.lab import Lab
from memlab.lab.svg import text_width
from tests.lab.loops import Slow, train
from tests.waiting import SOON, wait_for


def make(train=train, **options):
    return Lab(train, **{"batch_size": (1, 64), "device": "cpu", "steps": 5, **options})


def shown(lab, name):
    """The text of one of the panel's parts."""
    return html.unescape(re.sub("<[^>]*>", "", lab._texts[name].value))


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


def test_run_moves_the_controls_shows_the_pictures_and_gives_the_trace():
    lab = make(width=[16, 32], compiled=bool)
    trace = lab.run(batch_size=4, width=32, compiled=True)
    assert trace is lab.trace
    assert {name: control.value for name, control in lab._controls.items()} == {
        "batch_size": 4,
        "width": 32,
        "compiled": True,
    }
    assert trace.sentence in html.unescape(lab._texts["memory"].value)
    assert "step 5 of 5" in shown(lab, "progress")
    assert shown(lab, "status") == "Done after 5 of 5 steps. Ready."
    assert lab.traces == (trace,)
    assert lab.session.prediction is None  # the controls moved, and nothing was predicted for that


def test_the_buttons_run_and_stop():
    slow = Slow()
    lab = make(slow, steps=100)
    button(lab, "Run").click()
    slow.step.release()
    wait_for(lambda: "step 1 of 100" in shown(lab, "progress"))
    button(lab, "Stop").click()
    assert shown(lab, "status") == "Stopping."
    slow.step.release()
    wait_for(lambda: re.fullmatch(r"Stopped after [12] of 100 steps\. Ready\.", shown(lab, "status")))
    assert lab.trace is not None


def test_a_moved_slider_shows_a_prediction():
    lab = make()
    lab._controls["batch_size"].value = 32
    wait_for(lambda: "Predicted for a T4" in shown(lab, "sentence"))
    assert "predicted for a T4" in shown(lab, "memory")
    assert lab.trace is None


def test_a_slider_moved_during_a_run_counts_for_the_next():
    slow = Slow()
    lab = make(slow, steps=2)
    button(lab, "Run").click()
    assert slow.in_step.wait(SOON)
    lab._controls["batch_size"].value = 32
    assert shown(lab, "note") == "For the next run: batch size 32."
    slow.step.release(2)
    wait_for(lambda: lab.trace is not None)
    assert lab.trace.settings["batch_size"] == 8


def test_another_card_in_the_menu_is_predicted_at_once():
    lab = make(gpu="h100")
    assert lab._card_menu.value == "H100"
    lab._card_menu.value = "L4"
    wait_for(lambda: "Predicted for an L4" in shown(lab, "sentence"))


def test_a_card_and_what_pytorch_can_have_of_it_can_be_read_in_the_menu():
    labels = [label for label, _ in make()._card_menu.options]
    assert "T4: 14.4 GiB" in labels
    assert max(map(text_width, labels)) < 190  # pixels that are left for it on a projector, 1280 wide


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
    """What a notebook is given for the panel, by MIME type."""
    given = []
    monkeypatch.setattr("memlab.lab.look.display", lambda data, raw: given.append(data))
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
    lab.stop()
    slow.step.release()


def all_widgets(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from all_widgets(child)


def test_every_control_has_a_name_and_says_what_it_is_for():
    lab = make(width=[16, 32], compiled=bool, models={"Wide": {"optimizer": "AdamW"}})
    shown_only = (widgets.Box, widgets.HTML)
    controls = [widget for widget in all_widgets(lab._panel) if not isinstance(widget, shown_only)]
    assert len(controls) == 17
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


def test_kept_predictions_and_runs_make_a_table_that_can_be_sorted():
    lab = make()
    button(lab, "Keep").click()
    assert "Keep is for predictions" in shown(lab, "note")
    table, order = lab._taking._table, lab._taking._order
    for batch in (64, 4):
        lab._controls["batch_size"].value = batch
        wait_for(lambda size=batch: lab.session.screen.view and f"batch {size}<" in lab.session.screen.memory)
        wait_for(lambda: not lab.session._worker.stop())
        button(lab, "Keep").click()
    assert order.layout.display is None
    assert table.value.index("batch 4<") < table.value.index("batch 64<")
    order.value = "most samples/s"
    assert table.value.index("batch 64<") < table.value.index("batch 4<")
    lab.run()
    assert "measured" in table.value


def test_before_two_rows_there_is_no_table():
    lab = make()
    lab.run()
    assert lab._taking._table.value == ""
    assert lab._taking._order.layout.display == "none"


def test_the_code_follows_what_is_on_show():
    lab = make()
    box = lab._taking._code
    assert box.layout.display == "none"
    button(lab, "Code").value = True
    assert (box.layout.display, box.value) == (None, "There is nothing to take yet: move a slider or press Run.")
    lab.run(batch_size=4)
    assert box.value == "from memlab import measure\n\nmeasure(train, steps=5, batch_size=4)"


def test_links_to_save_are_there_until_something_else_is_on_show():
    lab = make()
    button(lab, "Save").click()
    assert "nothing to take" in lab._taking._links.value
    lab.run(batch_size=4)
    button(lab, "Save").click()
    assert [name for name in ("batch-4.png", "batch-4.csv", "runs.csv") if name not in lab._taking._links.value] == []
    lab.run(batch_size=5)
    assert lab._taking._links.value == ""


def test_workspace_is_hidden_and_shown_again():
    lab = make()
    lab._controls["batch_size"].value = 32
    wait_for(lambda: "workspace" in shown(lab, "memory"))
    wait_for(lambda: not lab.session._worker.stop())
    before = lab._texts["memory"].value
    button(lab, "hide workspace").value = True
    assert "workspace is hidden: the line and the peak count it" in shown(lab, "memory")
    button(lab, "hide workspace").value = False
    assert lab._texts["memory"].value == before


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


def test_a_panel_that_is_shown_after_a_run_shows_it():
    lab = make()
    lab.run(batch_size=4)
    assert lab._controls["batch_size"].value == 4
    assert "step 5 of 5" in shown(lab, "progress")
    button(lab, "Reset").click()
    assert lab._controls["batch_size"].value == 8
