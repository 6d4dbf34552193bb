"""A panel without its widgets: settings that are chosen, runs and predictions of them, and what is said meanwhile."""

import threading
from collections import deque
from collections.abc import Mapping
from concurrent import futures
from contextlib import suppress
from dataclasses import replace
from typing import Any

from memlab import logbook
from memlab.devices import open_device
from memlab.errors import BadValue, MemlabError, NotWritten, Stopped
from memlab.lab import recorded
from memlab.lab.checks import OWN_MODEL, check_choices, check_models, other_model
from memlab.lab.forecast import Forecast
from memlab.lab.forecast_cache import Case
from memlab.lab.jobs import Job, Stopping
from memlab.lab.live import LiveRun
from memlab.lab.progress import progress
from memlab.lab.ranks import check_run, of_train, open_run
from memlab.lab.rows import add
from memlab.lab.screen import SILENCE, Screen, View, Words
from memlab.lab.words import ending, failure_sentence, recorded_summary, value_text
from memlab.protocol import Train, check_settings
from memlab.run import Run
from memlab.text import message
from memlab.trace import Trace
from memlab.units import format_bytes, parse_bytes
from memlab.vgpu import find_card

EARLIER = 3  # runs that the losses of the next are drawn over


class Session:
    """A ``train`` function, its memory predicted as settings are chosen and measured when it runs.

    It needs no display: what there is to see stands in ``screen``. One worker thread trains and predicts; whatever else
    is called returns at once, but for :meth:`run`. The arguments are those of :class:`memlab.Lab`.

    Attributes:
        choices: what may be chosen, by the name of the setting.
        screen: what there is to see.
        device: the name of the device that runs are measured on.
        budget: of what is measured, as it was given or typed.
        models: what may be predicted, the settings that make it by its name; the last is what Run trains.
    """

    def __init__(
        self,
        train: Train,
        choices: Mapping[str, Any],
        *,
        steps: int,
        device: str | None,
        budget: str | int | None,
        gpu: str,
        title: str | None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        self._train = train
        self._device = device
        self.steps = steps
        self.choices, settings = check_choices(train, choices)
        self.screen = Screen(settings)
        self._runs = 0  # that wait or go on
        self._last_word = threading.RLock()  # of a run, against "Stopping.": what is said last must be true
        self._running: dict[str, Any] = {}
        self._finished: deque[Trace] = deque(maxlen=EARLIER)
        opened = open_device(device)
        Run(train, of_train(settings), opened, steps=steps, budget=budget)  # says at once what is wrong
        self.device = opened.name
        self.title = title or getattr(train, "__name__", "train").replace("_", " ").capitalize()
        self.recorded = recorded.runs(self.title, self.refuse)
        self.budget = f"{budget} B" if isinstance(budget, int) else budget or ""
        self.screen.gpu = find_card(gpu).name
        self.models = check_models(train, models or {}, settings)
        self.screen.model = next(iter(self.models))
        self._forecast = Forecast(train, self.choices, self.models, self.screen, self._budget_or_none)
        self._worker = self._forecast.worker
        self.screen.say(self._ready)
        self.screen.show(sentence="Move a slider to see what a training step would take, press Run to train.")

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The last three runs, those that the charts show, the newest last."""
        return tuple(self._finished)

    @property
    def train(self) -> Train:
        """The loop that the panel is of."""
        return self._train

    @property
    def model(self) -> str:
        """The name of the model on show."""
        return self.screen.model

    @property
    def gpu(self) -> str:
        """The name of the card that predictions are for."""
        return self.screen.gpu

    @property
    def prediction(self) -> Trace | None:
        """The newest prediction."""
        return self._forecast.newest

    @property
    def busy(self) -> bool:
        """True while a run is waiting or going on."""
        return self._runs > 0

    # What the learner does

    def choose(self, name: str, value: Any) -> None:
        """Change a setting: what it would take is predicted, or during a run it counts for the next.

        Raises:
            BadValue: for an illegal value.
        """
        self.choices[name].check(value)
        if value != self.screen.settings[name]:
            self._forecast.moved, self._forecast.chose_card = name, False
            self.screen.show(settings=self.screen.settings | {name: value})
            self._moved()

    def choose_card(self, gpu: str) -> None:
        """Predict for another card.

        Raises:
            BadValue: for an unknown one.
        """
        if (name := find_card(gpu).name) != self.gpu:
            self.screen.show(gpu=name)
            self._forecast.chose_card = True
            self._moved()

    def choose_model(self, name: str) -> None:
        """Predict another of the models.

        Raises:
            BadValue: for an unknown one.
        """
        if name not in self.models:
            raise BadValue(f"model {name!r} is not on this panel: give one of {', '.join(map(repr, self.models))}.")
        if name != self.model:
            self.screen.show(model=name)
            self._moved()

    def bring_back(self, number: int) -> None:
        """Choose what a row of the table had: its settings, its model and, of a prediction, its card."""
        for row in self.screen.rows:
            if row.number == number:
                predicted = row.source == "predicted"
                if predicted:
                    self.screen.show(gpu=row.device)
                chosen = {name: self.choices[name].read(said) for name, said in row.settings.items()}
                model = row.model if predicted and row.model else OWN_MODEL
                self.screen.show(settings=self.screen.settings | chosen, model=model)
                self._moved()

    def choose_budget(self, text: str) -> None:
        """Change the budget of the next runs: a size, ``""`` or ``"none"``; other text is refused on the screen."""
        self.budget = text.strip()
        try:
            budget = self._parse_budget()
        except BadValue as refusal:
            self.refuse(refusal)
        else:
            words = f"a budget of {format_bytes(budget)}" if budget else "no budget"
            self.screen.note_down(f"From the next run on: {words}.")
            if self.screen.view is not None and not self.busy:
                self.screen.look_at(replace(self.screen.view, budget=budget))

    def refuse(self, refusal: MemlabError) -> None:
        """Say what could not be done."""
        self.screen.note_down(str(refusal), alert=True)

    def predict(self) -> Job | None:
        """Predict what is chosen, unless a run is going on. What is known is shown at once, and None given back."""
        if self.busy:
            return None
        return self._forecast.ask(Case(dict(self.screen.settings), self.model, self.gpu))

    def start(self) -> Job:
        """Begin a run with what is chosen; one that is going on is stopped before.

        Raises:
            BadValue: the budget is none, or this machine cannot run so many ranks.
        """
        return self._start({}, self._parse_budget())

    def run(self, **settings: Any) -> Trace:
        """As :meth:`memlab.Lab.run`."""
        for name, value in settings.items():
            if name in self.choices:
                self.choices[name].check(value)
        check_settings(self._train, of_train(self.screen.settings | settings))
        job = self._start(settings, self._parse_budget())
        try:
            while not futures.wait([job], timeout=0.2).done:
                pass
        except KeyboardInterrupt:
            self._worker.stop()
            futures.wait([job])
            raise
        trace = job.result()
        if trace is None:
            raise MemlabError("The run was stopped before its first step ended: run it again.")
        return trace

    def replay(self, trace: Trace) -> None:
        """As :meth:`memlab.Lab.replay`."""
        if self.busy:
            raise MemlabError("A run is going on: press Stop, or wait for its end, then replay.")
        self._forecast.leave()
        self.screen.show(recorded=trace)
        self._worker.submit(lambda stopping: self._replay_in_worker(trace))

    def stop(self) -> None:
        """Ask the run or the prediction that is going on to end; after some seconds it is broken off."""
        with self._last_word:
            if busy := self.busy:
                self.screen.say("Stopping.")
        if self._worker.stop() and not busy:
            self.screen.say("Stopped the prediction. Ready.")
        elif not busy:
            self.screen.say("Nothing is running: press Run to start.")

    def hold(self) -> None:
        """Code runs that may change what ``train`` does: forget what was predicted, and predict only what is chosen."""
        self._forecast.hold()

    def look_ahead(self, *, at_once: bool = False) -> None:
        """When nothing else is to be done, for a moment or ``at_once``, predict what may be chosen next."""
        self._forecast.look_ahead(at_once=at_once)

    def close(self) -> None:
        """End what goes on, and keep nothing but the runs."""
        self._worker.stop()
        self.hold()

    def _moved(self) -> None:
        if self.busy:
            chosen = self.screen.settings
            changed = [
                f"{choice.label} {value_text(chosen[name])}"
                for name, choice in self.choices.items()
                if chosen[name] != self._running.get(name)
            ]
            self.screen.note_down(f"For the next run: {', '.join(changed)}." if changed else "")
        else:
            self.screen.note_down("")
            self.screen.say(self._ready)  # how the last run ended is no longer of what is chosen
            self._end_replay()
            self.predict()

    @property
    def _ready(self) -> str:
        return f"Ready: Run trains {self.steps} steps."

    def _end_replay(self) -> None:
        if self.screen.recorded is not None:
            self.screen.show(recorded=None, run=None)

    def _parse_budget(self) -> int | None:
        return parse_bytes(self.budget) if self.budget not in ("", "none") else None

    def _budget_or_none(self) -> int | None:
        with suppress(BadValue):  # said when it was typed
            return self._parse_budget()
        return None

    def _start(self, settings: dict[str, Any], budget: int | None) -> Job:
        self._running = running = self.screen.settings | settings
        check_run(running, self._device)
        before = other_model(self.model)
        # Prediction and run are of the same model, until another one is chosen.
        self.screen.show(settings={name: running[name] for name in self.choices}, model=OWN_MODEL, action="Stop")
        self.screen.note_down("")
        self._end_replay()
        self._forecast.leave()
        if self.screen.view is not None:  # it is of something else
            self.screen.show(pending="The picture of this run comes with its first step.")
        with self._last_word:
            self._runs += 1
        return self._worker.submit(lambda stopping: self._train_in_worker(running, budget, before, stopping))

    # What the worker does

    def _replay_in_worker(self, trace: Trace) -> None:
        if self.screen.recorded is not trace:
            return  # something else was chosen meanwhile
        try:
            view = View(trace, self.choices.keys(), recorded=True)
            view.to_plain()  # what cannot be drawn is not on show, either
            run = progress(trace.steps, len(trace.steps), name=f"recorded on {trace.device}")
            sentence = recorded_summary(trace)
            self.screen.look_at(view)
            self.screen.show(run=run, sentence=sentence)
        except Exception as error:  # it comes from outside: of what is in it anything may be wrong
            self.refuse(MemlabError(f"This recorded run cannot be drawn: {type(error).__name__}: {message(error)}"))

    def _train_in_worker(
        self, settings: dict[str, Any], budget: int | None, before: str, stopping: Stopping
    ) -> Trace | None:
        words = SILENCE
        try:
            trace = self._train_and_draw(settings, budget, before, stopping)
            if trace is not None:
                self._finished.append(trace)
                self.screen.show(rows=add(self.screen.rows, trace, self.choices.keys()))
                self._log(trace)
            back = f" To predict {before} again, choose it under model." if before else ""
            words = Words(ending(trace, self.steps, stopping.is_set()) + back)
            return trace
        except BaseException as error:
            words = Words(failure_sentence(error, self._train), alert=True)
            raise
        finally:
            with self._last_word:
                self._runs -= 1
                self.screen.show(status=words, pending="", **({} if self.busy else {"action": "Run"}))

    def _log(self, trace: Trace) -> None:
        try:
            logbook.append(self.title, trace)
        except NotWritten as refusal:  # the run is good all the same
            self.refuse(refusal)

    def _train_and_draw(
        self, settings: dict[str, Any], budget: int | None, before: str, stopping: Stopping
    ) -> Trace | None:
        outline = self._forecast.foresee(Case(settings, OWN_MODEL, self.gpu), stopping)
        run = open_run(
            self._train,
            settings,
            self._device,
            steps=self.steps,
            budget=budget,
            stopping=stopping,
            on_wait=lambda: self.screen.say("Waiting for another run to end."),
        )
        live = LiveRun(run, self.steps, self.screen, self.choices.keys(), budget, outline, self.traces)
        try:
            with suppress(Stopped), run:
                # Said once: a screen reader reads out every change, and the button counts the steps.
                instead = f" the loop's own model, not {before}" if before else ""
                self.screen.say(f"Training{instead}. Stop ends the run.")
                live.follow(stopping)
        finally:  # whatever train raises
            if run.steps:
                live.draw(going=False)
        return run.trace() if run.steps else None
