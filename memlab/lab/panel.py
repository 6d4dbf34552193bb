"""The panel: controls on the left, live pictures on the right, one sentence below."""

import threading
import time
from collections import deque
from concurrent import futures
from html import escape
from typing import Any

import ipywidgets as widgets

from memlab import logbook
from memlab.devices import open_device
from memlab.errors import BadValue, MemlabError, NotWritten
from memlab.lab import recorded
from memlab.lab.controls import LABEL_WIDTH, Control, make_control
from memlab.lab.drawing import memory_chart, steps_chart
from memlab.lab.words import failure_sentence, prediction_summary, recorded_summary, run_name, summary
from memlab.lab.worker import Job, Worker
from memlab.palette import LIMIT, QUIET_INK
from memlab.run import Run, Train, check_settings, own_settings
from memlab.trace import Trace
from memlab.units import format_bytes, parse_bytes
from memlab.vgpu import CARDS, find_card
from memlab.vgpu.gpu import VirtualGpu

SECONDS_PER_FRAME = 0.1
GHOSTS = 3
PREDICTED_STEPS = 2  # the first sets the optimizer's state up, the second is like all that follow


class Lab:
    """Sliders on a ``train`` function, its memory predicted as they move and drawn while it trains.

    Show it by naming it at the end of a cell. A moved slider shows at once what a step would take on the card chosen
    in the menu, which need not be there. Run trains for real, Stop ends the run after the step it is in; a slider
    moved meanwhile counts from the next run on. Where runs of this panel were recorded on other machines, a menu
    shows them again.

    Args:
        train: ``train(device, **settings)``, a generator that yields its loss once a step.
        steps: how many steps a run takes.
        device: ``"cpu"`` or ``"cuda"``; by default CUDA where there is one.
        budget: the budget to begin with, ``"15 GiB"`` or bytes. It limits what is measured; the card limits
            what is predicted.
        gpu: the card to begin with, one of ``memlab.vgpu.CARDS``.
        title: written above the panel; by default the name of ``train``.
        **controls: a setting of ``train`` each. ``(1, 64)`` makes a slider, a list a menu, ``bool`` a
            box to tick; each begins at ``train``'s own default.

    Raises:
        BadTrain, BadValue: what cannot be put on a panel, at once.
    """

    def __init__(
        self,
        train: Train,
        /,
        *,
        steps: int = 40,
        device: str | None = None,
        budget: str | int | None = None,
        gpu: str = "T4",
        title: str | None = None,
        **controls: Any,
    ):
        self._train = train
        self._device = device
        self._steps = steps
        self._controls = self._make_controls(controls)
        self._worker = Worker()
        self._job: Job | None = None
        self._running: dict[str, Any] = {}
        self._finished: deque[Trace] = deque(maxlen=GHOSTS)
        self._predicted: Trace | None = None
        Run(train, self._shown(), open_device(device), steps=steps, budget=budget)  # says at once what is wrong
        title = title or getattr(train, "__name__", "train").replace("_", " ").capitalize()
        self.title = title
        self._recorded = recorded.runs(title)
        self._build(budget, find_card(gpu).name)

    @property
    def trace(self) -> Trace | None:
        """The trace of the last run that finished or was stopped, None before the first."""
        return self._finished[-1] if self._finished else None

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The last three runs, those that the charts show, the newest last."""
        return tuple(self._finished)

    def run(self, **settings: Any) -> Trace:
        """Train with the controls as they stand, ``settings`` changed first, and wait for the trace.

        Does without a browser. Ctrl-C stops the run and is raised again; the steps so far stay in
        ``trace``. A run that is going on is stopped before.

        Raises:
            BadValue: a setting that is unknown or outside its control's range; nothing is changed then.
            Exception: whatever ``train`` raises.
        """
        for name, value in settings.items():
            if name in self._controls:
                self._controls[name].check(value)
        check_settings(self._train, self._shown() | settings)
        budget = self._budget()
        for name, value in settings.items():
            if name in self._controls:
                self._controls[name].value = value
        job = self._start(settings, budget)
        try:
            while not futures.wait([job], timeout=0.2).done:
                pass
        except KeyboardInterrupt:
            job.stopping.set()
            futures.wait([job])
            raise
        trace = job.result()
        if trace is None:
            raise MemlabError("The run was stopped before its first step ended: run it again.")
        return trace

    def replay(self, trace: Trace) -> None:
        """Show a run that was recorded before, perhaps on another machine: its pictures, and where it ran.

        Raises:
            MemlabError: a run is going on.
        """
        if self._busy:
            raise MemlabError("A run is going on: press Stop, or wait for its end, then replay.")
        self._worker.submit(lambda stopping: self._replay_in_worker(trace))

    def stop(self) -> None:
        """Ask the run that is going on to end after the step it is in."""
        if self._busy:
            self._job.stopping.set()
            self._say("Stopping after this step.")
        else:
            self._say("Nothing is running: press Run to start.")

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._panel)
        self._predict_soon()

    # Building

    def _make_controls(self, choices: dict[str, Any]) -> dict[str, Control]:
        named = own_settings(self._train)
        controls = {}
        for name, choice in choices.items():
            if name not in named:
                legal = ", ".join(named) or "none"
                raise BadValue(f"{name}={choice!r} controls nothing: the settings of train are {legal}.")
            default = named[name].default
            if default is named[name].empty:  # begin at the first choice
                default = False if choice is bool else choice[0]
            controls[name] = make_control(name, choice, default)
            controls[name].on_change = self._moved
            controls[name].on_refusal = self._refuse
        return controls

    def _build(self, budget: str | int | None, gpu: str) -> None:
        self._card_menu = widgets.Dropdown(
            options=list(CARDS),
            value=gpu,
            description="predict for",
            style={"description_width": LABEL_WIDTH},
            layout={"width": "auto"},
        )
        self._card_menu.observe(lambda change: self._moved(), "value")
        self._budget_box = widgets.Text(
            "" if budget is None else str(budget),
            placeholder="none, or 15 GiB",
            continuous_update=False,
            description="budget",
            style={"description_width": LABEL_WIDTH},
            layout={"width": "auto"},
        )
        self._budget_box.observe(self._budget_typed, "value")
        self._replay_menu = widgets.Dropdown(
            options=[("choose", None), *((run_name(trace), trace) for trace in self._recorded)],
            description="recorded",
            style={"description_width": LABEL_WIDTH},
            layout={"width": "auto", "display": None if self._recorded else "none"},
        )
        self._replay_menu.observe(lambda change: self._replay_chosen(), "value")
        run = widgets.Button(description="Run", button_style="success", layout={"flex": "1 1 0", "height": "36px"})
        stop = widgets.Button(description="Stop", layout={"flex": "1 1 0", "height": "36px"})
        run.on_click(lambda button: self._run_pressed())
        stop.on_click(lambda button: self.stop())
        # Two lines: what the run does, and what the learner's last move means.
        self._status, self._note = widgets.HTML(), widgets.HTML()
        controls = widgets.VBox(
            [
                *(control.widget for control in self._controls.values()),
                self._card_menu,
                self._budget_box,
                self._replay_menu,
                widgets.HBox([run, stop], layout={"margin": "10px 0 6px 0"}),
                self._status,
                self._note,
            ],
            layout={"flex": "1 1 330px", "max_width": "430px", "margin": "0 16px 8px 0"},
        )
        self._memory, self._progress, self._sentence = widgets.HTML(), widgets.HTML(), widgets.HTML()
        wide = {"width": "100%", "margin": "0"}
        for picture in (self._memory, self._progress, self._sentence):
            picture.layout = widgets.Layout(**wide)
        pictures = widgets.VBox(
            [self._memory, self._progress, self._sentence], layout={"flex": "3 1 460px", "min_width": "0"}
        )
        # Beside each other where there is room, else the pictures below the controls.
        body = widgets.HBox([controls, pictures], layout={"flex_flow": "row wrap"})
        device = open_device(self._device).name
        self._panel = _Panel([widgets.HTML(_header(self.title, device)), body], layout={"padding": "8px"})
        self._say(f"Ready: Run trains {self._steps} steps.")
        self._sentence.value = _box("Move a slider to see what a training step would take, press Run to train.")

    # What the learner does. These run in the kernel's own thread, so they only set values or queue a run.

    def _moved(self) -> None:
        if self._busy:
            changed = [
                f"{control.label} {control.value}"
                for name, control in self._controls.items()
                if control.value != self._running.get(name)
            ]
            self._note_down(f"For the next run: {', '.join(changed)}." if changed else "")
        else:
            self._note_down("")
            self._end_replay()
            self._predict_soon()

    def _predict_soon(self) -> None:
        """Queue a prediction of what is shown; a newer one takes the place of one that waits."""
        if not self._busy:
            settings, gpu = self._shown(), self._card_menu.value
            self._worker.submit(lambda stopping: self._predict_in_worker(settings, gpu, stopping))

    @property
    def _busy(self) -> bool:
        """Whether a run is waiting or going on."""
        return self._job is not None and not self._job.done()

    def _replay_chosen(self) -> None:
        if self._replay_menu.value is not None:
            try:
                self.replay(self._replay_menu.value)
            except MemlabError as refusal:
                self._replay_menu.value = None
                self._refuse(refusal)

    def _end_replay(self) -> None:
        if self._replay_menu.value is not None:
            self._replay_menu.value, self._progress.value = None, ""

    def _refuse(self, refusal: MemlabError) -> None:
        self._note_down(str(refusal), alert=True)

    def _budget_typed(self, change) -> None:
        try:
            budget = self._budget()
        except BadValue as refusal:
            self._refuse(refusal)
        else:
            self._note_down(
                f"From the next run on: {f'a budget of {format_bytes(budget)}' if budget else 'no budget'}."
            )

    def _budget(self) -> int | None:
        text = self._budget_box.value.strip()
        return parse_bytes(text) if text and text != "none" else None

    def _run_pressed(self) -> None:
        try:
            self._start({}, self._budget())
        except BadValue as refusal:
            self._refuse(refusal)

    def _shown(self) -> dict[str, Any]:
        return {name: control.value for name, control in self._controls.items()}

    def _start(self, settings: dict[str, Any], budget: int | None) -> Job:
        self._running = settings = self._shown() | settings
        self._note_down("")
        self._end_replay()
        self._job = self._worker.submit(lambda stopping: self._train_in_worker(settings, budget, stopping))
        return self._job

    # What the worker does

    def _predict_in_worker(self, settings: dict[str, Any], gpu: str, stopping: threading.Event) -> None:
        try:
            with Run(self._train, settings, VirtualGpu(gpu), steps=PREDICTED_STEPS) as run:
                for _ in run if not stopping.is_set() else ():
                    if stopping.is_set():
                        return
                if not run.steps:
                    return
                trace = run.trace()
        except Exception as error:  # the loop may still be measured
            self._note_down(f"No prediction: {failure_sentence(error, self._train)}")
            return
        before, self._predicted = self._predicted, trace
        card = find_card(gpu)
        self._memory.value = memory_chart(trace, (), origin=f"predicted for {card.name}", capacity=card.capacity)
        self._sentence.value = _box(prediction_summary(trace, before))

    def _replay_in_worker(self, trace: Trace) -> None:
        self._memory.value = memory_chart(trace, (), origin=f"recorded on {trace.device}")
        self._progress.value = steps_chart(trace.steps, (), len(trace.steps))
        self._sentence.value = _box(recorded_summary(trace))

    def _train_in_worker(self, settings: dict[str, Any], budget: int | None, stopping: threading.Event) -> Trace | None:
        try:
            trace = self._train_and_draw(settings, budget, stopping)
        except BaseException as error:
            self._say(failure_sentence(error, self._train), alert=True)
            raise
        if trace is not None:
            self._finished.append(trace)
            self._log(trace)
        return trace

    def _log(self, trace: Trace) -> None:
        try:
            logbook.append(self.title, trace)
        except NotWritten as refusal:  # the run is good all the same
            self._note_down(str(refusal), alert=True)

    def _train_and_draw(self, settings: dict[str, Any], budget: int | None, stopping: threading.Event) -> Trace | None:
        ghosts = list(self._finished)
        with Run(self._train, settings, open_device(self._device), steps=self._steps, budget=budget) as run:
            # Said once: a screen reader reads out every change, and the chart counts the steps.
            self._say("Training. Stop ends the run after the step that it is in.")
            drawn_at, drawn_step = 0.0, -1
            for _ in run if not stopping.is_set() else ():
                if stopping.is_set():
                    break
                if time.monotonic() - drawn_at >= SECONDS_PER_FRAME:
                    drawn_step = self._draw(run, ghosts, budget, drawn_step)
                    drawn_at = time.monotonic()
            if not run.steps:
                self._say("Stopped before the first step. Ready.")
                return None
            trace = run.trace()
            self._draw(run, ghosts, budget, -1)
        self._say(f"{self._ending(trace, stopping.is_set())} after {len(trace.steps)} of {self._steps} steps. Ready.")
        return trace

    def _ending(self, trace: Trace, stopped: bool) -> str:
        if trace.oom:
            return "Out of memory"
        if len(trace.steps) == self._steps:
            return "Done"
        return "Stopped" if stopped else "The training loop ended"

    def _draw(self, run: Run, ghosts: list[Trace], budget: int | None, drawn_step: int) -> int:
        """Draw what has changed; the memory chart only where there is a newer X-ray."""
        if run.xray_step != drawn_step:
            trace = run.trace()
            self._memory.value = memory_chart(trace, ghosts, budget=budget)
            self._sentence.value = _box(summary(trace, ghosts, self._prediction_of(trace)))
        self._progress.value = steps_chart(run.steps, [ghost.steps for ghost in ghosts], self._steps)
        return run.xray_step

    def _prediction_of(self, trace: Trace) -> Trace | None:
        """The prediction on show, if it is one of the same settings."""
        predicted = self._predicted
        return predicted if predicted is not None and predicted.settings == trace.settings else None

    def _say(self, text: str, alert: bool = False) -> None:
        self._status.value = _line(text, "alert" if alert else "status")

    def _note_down(self, text: str, alert: bool = False) -> None:
        self._note.value = _line(text, "alert" if alert else "status") if text else ""


class _Panel(widgets.VBox):
    """The panel's outermost box; as text, where no widget can be shown, it says how to see it."""

    def __repr__(self) -> str:
        return "A memlab Lab: run this notebook in Jupyter to move its sliders, or call run() on it."


def _header(title: str, device: str) -> str:
    style = "display:flex;flex-wrap:wrap;justify-content:space-between;align-items:baseline"
    source = f'<span style="color:{QUIET_INK}">Run measures on {escape(device)}</span>'
    return f'<div style="{style}"><h3 style="margin:4px 0">{escape(title)}</h3>{source}</div>'


def _line(text: str, role: str) -> str:
    color = LIMIT if role == "alert" else QUIET_INK
    return f'<div role="{role}" style="line-height:1.4;color:{color}">{escape(text)}</div>'


def _box(text: str) -> str:
    style = "background:#F6F8FA;border-radius:6px;padding:8px 12px;line-height:1.5;font-size:15px;color:#222"
    return f'<div style="{style}">{escape(text)}</div>'
