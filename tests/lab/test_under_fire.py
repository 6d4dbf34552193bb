"""A lab under fire: what a class does to two panels in an hour, at random and as fast as they take it."""

import gc
import json
import random
import re
import threading
import time
from contextlib import suppress

import pytest
import torch

from memlab.errors import MemlabError
from memlab.lab import Lab, jobs
from tests.conftest import SEED
from tests.lab.test_panel import button, registered
from tests.waiting import wait_for

ACTIONS = 1000
STEPS = 4
FAULTS = ("none", "raises", "raises late", "exits", "yields text", "ends", "grows", "branches", "is too large")
BUDGETS = ("", "none", "1 KiB", "10 KiB", "15 GiB", "lots", "1,5 GiB", "-3", "1e400", "0")
CARDS = ("T4", "L4", "H100")

# All that the line below the buttons may say: at rest, and while something goes on.
BACK = r"( To predict Wide again, choose it under model\.)?"
AT_REST = re.compile(
    rf"Ready: Run trains {STEPS} steps\.|Nothing is running: press Run to start\.|Stopped the prediction\. Ready\."
    rf"|(Done|Stopped|Out of memory|The training loop ended) after [1-{STEPS}] of {STEPS} steps\. Ready\.{BACK}"
    rf"|Stopped before the first step\. Ready\.{BACK}"
    r"|(RuntimeError: mine|SystemExit: enough) .*Fix it, then run its cell and the panel's again\."
    r"|train yielded a str: yield one number, the loss of the step \(or None\)\."
)
ACTION = re.compile(rf"Stop( · [0-{STEPS}] of {STEPS}( · [\d.]+ (us|ms|s))?)?")  # on the button, while a run goes on
GOING_ON = re.compile(
    r"Predicting this run first, to compare\. Stop ends it\."
    r"|Training( the loop's own model, not Wide)?\. Stop ends the run\.|Stopping\.|Waiting for another run to end\."
)
CAUSES = (RuntimeError, SystemExit, MemlabError)  # what a run may end with, all of it told


def train(device, *, batch_size=8, width=16, fault="none"):
    model = torch.nn.Linear(width, width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for step in range(100):
        if fault == "raises" or (fault == "raises late" and step == 2):
            raise RuntimeError("mine")
        if fault == "exits":
            raise SystemExit("enough")
        if fault == "ends" and step == 2:
            return
        if fault == "is too large" and device.type != "cpu":
            kept.append(torch.empty(2**34, device=device))
        x = torch.ones(batch_size, width, device=device)
        if fault == "grows":
            kept.append(torch.ones(batch_size * 2**12, device=device))
        loss = model(x[x > 0].view(batch_size, -1) if fault == "branches" else x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield "low" if fault == "yields text" else loss


class Learner:
    """Somebody who does at random what a panel allows, and looks what it says."""

    def __init__(self, rng, recorded):
        self._rng = rng
        self._recorded = recorded
        self.lab = Lab(
            train,
            batch_size=(1, 64),
            width=[16, 32, 64],
            fault=list(FAULTS),
            steps=STEPS,
            device="cpu",
            models={"Wide": {}},
        )
        self.runs = []
        self._note_runs()
        self.actions = [
            *[self.move] * 6,
            *[self.press_go] * 3,
            *(self.stop, self.start, self.bring_back, self.browser_begins),
            *(self.type_number, self.choose_fault, self.choose_card, self.choose_model, self.type_budget, self.reset),
            *(self.replay, self.press, self.begin_cell, self.end_cell, self.run_in_a_cell, self.wait),
        ]

    def _note_runs(self):
        worker = self.lab.session._worker
        submit = worker.submit
        worker.submit = lambda *given, **how: self.runs.append(submit(*given, **how)) or self.runs[-1]

    def act(self):
        self._rng.choice(self.actions)()
        self.look()

    def look(self):
        """Assert what holds at any moment."""
        screen, session = self.lab.session.screen, self.lab.session
        with session._last_word:  # or a run may end between two looks
            is_busy, text, action = session.busy, screen.status.text, screen.action
            assert self.lab._go.description == action
        assert AT_REST.fullmatch(text) or GOING_ON.fullmatch(text), text
        if is_busy:
            assert ACTION.fullmatch(action), action
        else:
            assert AT_REST.fullmatch(text), text
            assert action == "Run"
        assert {name: control.value for name, control in self.lab._controls.items()} == screen.settings
        assert (self.lab._model_menu.value, self.lab._card_menu.value) == (session.model, session.gpu)
        assert not (screen.recorded and is_busy)
        assert len(session.traces) <= 3
        json.dumps([self.lab._picture.shown, self.lab._picture.run, self.lab._picture.rows], allow_nan=False)

    def rest(self):
        """Nothing goes on when nobody does anything, and the panel says so."""
        session = self.lab.session
        wait_for(lambda: not session.busy and not session._worker.works)
        self.look()
        assert session.screen.pending == ""
        assert not self.lab._picture.stale
        assert self.lab._picture.shown == session.screen.picture()
        assert not (session.screen.run or {"going": False})["going"]
        assert [job for job in self.runs if not job.done()] == []
        assert [error for job in self.runs if (error := job.exception()) and not isinstance(error, CAUSES)] == []

    def move(self):
        self.lab._controls["batch_size"].value = self._rng.randint(1, 64)

    def type_number(self):
        self.lab._controls["batch_size"].widget.children[1].value = self._rng.choice((-1, 0, 3, 64, 65, 10**9))

    def choose_fault(self):
        self.lab._controls["fault"].value = self._rng.choice(FAULTS)
        self.lab._controls["width"].value = self._rng.choice((16, 32, 64))

    def choose_card(self):
        self.lab._card_menu.value = self._rng.choice(CARDS)

    def choose_model(self):
        self.lab._model_menu.value = self._rng.choice(self.lab._model_menu.options)

    def type_budget(self):
        self.lab._budget_box.value = self._rng.choice(BUDGETS)

    def press_go(self):
        self.lab._go.click()

    def start(self):
        with suppress(MemlabError):  # the budget is none
            self.lab.session.start()  # which ends a run that is going on

    def stop(self):
        self.lab._picture._handle_custom_msg({"stop": True}, [])

    def bring_back(self):
        rows = self.lab._picture.rows
        self.lab._picture._handle_custom_msg({"bring_back": self._rng.choice(rows)["number"] if rows else 1}, [])

    def browser_begins(self):
        self.lab._picture.set_state({"is_alive": True})

    def reset(self):
        button(self.lab, "Reset").click()

    def press(self):
        name = self._rng.choice(("Keep", "Save", "Code", "hide workspace"))
        pressed = button(self.lab, name)
        if name in ("Keep", "Save"):
            pressed.click()
        else:
            pressed.value = not pressed.value

    def replay(self):
        with suppress(MemlabError):  # a run is going on
            self.lab.replay(self._recorded)

    def begin_cell(self):
        self.lab.session.hold()

    def end_cell(self):
        self.lab.session.look_ahead()

    def run_in_a_cell(self):
        self.begin_cell()
        with suppress(*CAUSES):
            trace = self.lab.run(batch_size=self._rng.randint(1, 64))
            assert trace.oom or len(trace.steps) in (2, STEPS)
        self.end_cell()

    def wait(self):
        time.sleep(self._rng.random() / 50)


def live_bytes():
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def of_labs():
    return [thread for thread in threading.enumerate() if thread.name.startswith("memlab lab")]


@pytest.fixture
def lost(monkeypatch):
    """Return a list that collects the exceptions that nobody caught in a thread."""
    found = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def test_a_thousand_actions_on_two_labs_leave_nothing_behind(monkeypatch, lost):
    monkeypatch.setattr(jobs, "REST", 0.02)
    rng = random.Random(SEED)
    recorded = Lab(train, batch_size=(1, 64), steps=STEPS, device="cpu").run()
    wait_for(lambda: not of_labs())
    before, widgets = live_bytes(), registered()
    learners = [Learner(rng, recorded) for _ in range(2)]
    for action in range(ACTIONS):
        rng.choice(learners).act()
        if action % 25 == 24:
            for learner in learners:
                learner.rest()
    for learner in learners:
        learner.lab._controls["fault"].value = "none"
        learner.lab._budget_box.value = ""
        assert len(learner.lab.run().steps) == STEPS  # as good as new
        learner.rest()
        learner.lab.close()
    del learner, learners
    wait_for(lambda: not of_labs())
    assert lost == []
    wait_for(lambda: live_bytes() <= before)
    assert registered() == widgets
