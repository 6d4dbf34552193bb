"""The predictions of a panel: what is known is shown at once, what is not, nearly, and then as it is."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from memlab.errors import Stopped
from memlab.lab.checks import other_model
from memlab.lab.choices import Choice
from memlab.lab.forecast_cache import Case, Known, Remembered
from memlab.lab.jobs import Job, Stopping, Work, Worker
from memlab.lab.neighbours import is_end, is_number, neighbours
from memlab.lab.preview import Outline, between
from memlab.lab.ranks import WORLD_SIZE, open_prediction, steps_until
from memlab.lab.screen import Screen, View
from memlab.lab.steady import MOST_STEPS, Footprint, is_steady, unsteadiness
from memlab.lab.words import ABOUT, failure_sentence, prediction_summary, value_text
from memlab.protocol import Train
from memlab.run import Run
from memlab.trace import Trace
from memlab.vgpu import CARDS, find_card

NEARLY_FULL = 0.9  # of what PyTorch can have of a card
STEPS_TO_SHOW = 2  # of a prediction: the first sets the optimizer's state up, mostly the second is like all that follow
CARDS_AHEAD = 12  # that are predicted for after one was chosen
COMPILES = " PyTorch compiles the code first, which may take half a minute."  # and other predictions a second
SECONDS_AHEAD = 15.0  # that may be spent on what is chosen next, after each thing that is


class Forecast:
    """Predicts what is chosen, in a worker's thread, and shows it.

    A prediction that is going on ends, only the newest wish waits; what was predicted is remembered. While nobody does
    anything, what may be chosen next is predicted, after :meth:`look_ahead`.

    Attributes:
        worker: whose thread it is.
        newest: the last prediction that was shown; what is shown nearly is never kept.
        moved: the control that was moved last.
        chose_card: whether the card was chosen after that.
    """

    def __init__(
        self,
        train: Train,
        choices: Mapping[str, Choice],
        models: Mapping[str, Mapping[str, Any]],
        screen: Screen,
        budget: Callable[[], int | None],
    ):
        self._train = train
        self._choices = choices
        self._models = models
        self._screen = screen
        self._budget = budget
        self.worker = Worker(self._next_ahead, self._say_stuck)
        self.newest: Trace | None = None
        self.moved: str | None = None
        self.chose_card = False
        self._looks_ahead = False
        self._lock = threading.RLock()  # of what follows, and of what is shown
        self._remembered = Remembered()
        self._outline = lru_cache(maxsize=4)(self._read_outline)
        self._wanted: Case | None = None
        self._asked: Case | None = None  # what is wanted, until it is shown as it is
        self._ahead: Case | None = None  # what was predicted last before anybody asked for it
        self._on_show: Case | None = None
        self._shown: Hashable = None  # what the newest is of
        self._before: Trace | None = None  # what was shown before it
        self._steady = defaultdict[Hashable, set[Any]](set)  # numbers for which a loop was found to be, all else equal
        self._failed: set[Hashable] = set()
        self._compiling: Hashable = None  # the case that is predicted, once something is compiled for it
        self._age = 0  # how often all was forgotten
        self._seconds = 0.0  # that have been spent since something was chosen

    def ask(self, case: Case) -> Job | None:
        """Show what is known of it, and predict what is not; None where all is known. Never blocks."""
        with self._lock:
            self._wanted = self._asked = case
            self._seconds = 0.0
            if known := self._remembered.get(case.key):
                self.worker.drop()
                self._show(case, known)
                self._answered()
                self.worker.rest()
                return None
            self._screen.show(pending=self._announcement(case))
            is_shown = self._show_nearly(case)
            patient = not is_shown and self._is_learning_of(case)
            return self.worker.submit(partial(self._predict, case, False), case.key, patient=patient)

    def foresee(self, case: Case, stopping: Stopping) -> Trace | None:
        """In the worker's thread: what a case takes, to compare a run with; None where it cannot be predicted."""
        if case.key not in self._remembered and case.key not in self._failed:
            self._screen.say("Predicting this run first, to compare. Stop ends it.")
            self._predict(case, True, stopping)
        with self._lock:  # or a cell that begins would take it away meanwhile
            known = self._remembered.get(case.key)
        return known.trace if known is not None else None

    def leave(self) -> None:
        """Forget what is on show, because something else is about to be, and tell that no answer is awaited."""
        with self._lock:
            self._on_show = None
            self._answered()

    def look_ahead(self, *, at_once: bool = False) -> None:
        """From now on, predict what may be chosen next when nothing else is to be done."""
        self._looks_ahead = True
        self.worker.rest(at_once=at_once)

    def hold(self) -> None:
        """Predict nothing that nobody asked for; and ``train``, or what it reads, may change: forget what is known."""
        self._looks_ahead = False
        self.worker.hush()
        with self._lock:
            self._remembered.forget()
            self._outline.cache_clear()
            self._steady.clear()
            self._failed.clear()
            self._age += 1

    def _is_asked(self, case: Case) -> bool:
        return self._asked is not None and self._asked.key == case.key

    def _answered(self) -> None:
        self._asked = None
        if self._screen.pending:
            self._screen.show(pending="")

    def _announcement(self, case: Case) -> str:
        before = self._on_show.chosen if self._on_show else {}
        moved = {name: value for name, value in case.chosen.items() if value != before.get(name)}
        changed = [f"{self._choices[name].label} {value_text(value)}" for name, value in moved.items()]
        said = f"Predicting {', '.join([*changed, *filter(None, [other_model(case.model)]), case.gpu])}."
        return said + (COMPILES if case.key == self._compiling else "")

    def _say_stuck(self) -> None:
        self._screen.say("It cannot be stopped: train waits for something outside of Python. Restart the kernel.", True)

    # In the worker's thread

    def _predict(self, case: Case, is_ahead: bool, stopping: Stopping) -> None:
        begun = time.monotonic()
        try:
            settings = {**case.chosen, **self._models[case.model]}
            run = open_prediction(
                self._train,
                settings,
                case.gpu,
                is_endless=case.is_endless,
                on_compiling=partial(self._say_compiling, case),
                steps=MOST_STEPS,
                stopping=stopping,
            )
            with suppress(Stopped), run:
                self._until_steady(case, is_ahead, run, stopping)
        except BaseException as error:  # the loop may still be measured
            self._fail(case, error)
        with self._lock:
            self._compiling = None
            self._seconds += time.monotonic() - begun
            if self._is_asked(case) and not self.worker.is_waiting(case.key):  # it failed, or was stopped
                self._answered()

    def _say_compiling(self, case: Case) -> None:
        with self._lock:
            self._compiling = case.key
            if self._is_asked(case):
                self._screen.show(pending=self._screen.pending + COMPILES)

    def _until_steady(self, case: Case, is_ahead: bool, run: Run, stopping: Stopping) -> None:
        age = self._age
        steps, start = list[Footprint](), 0
        for step in steps_until(stopping, run):
            steps.append(Footprint(start, step.peak_allocated or 0))
            start = run.allocated
            if is_steady(steps):
                for name, line in self._lines(case):
                    self._steady[line].add(case.chosen[name])
                break
            if len(steps) == STEPS_TO_SHOW:  # most loops are steady by now, and a learner waits
                # On a card that is nearly full a later step may not find a free block, though it needs no more.
                has_room = case.is_endless or (run.peak_reserved or 0) < NEARLY_FULL * find_card(case.gpu).room
                if self._is_probably_steady(case) and start == steps[-1].start and has_room:
                    break
                self._offer(case, Known(run.trace(), ""), is_ahead)
        if steps and not stopping.is_set():
            self._keep(case, Known(run.trace(), unsteadiness(steps)), is_ahead, age)

    def _is_probably_steady(self, case: Case) -> bool:
        """Return whether two cases were that differ from it in one number, or it was on another card."""
        found = ((self._steady.get(line, ()), case.chosen[name]) for name, line in self._lines(case))
        return any(value in values or len(values) > 1 for values, value in found)

    def _lines(self, case: Case) -> Iterator[tuple[str, Hashable]]:
        """Each control of a number, with what equals for cases that differ in nothing but that number, and the card."""
        for name in filter(self._is_number, self._choices):
            _, *others = case.but_for(name)
            yield name, (name, *others)

    def _keep(self, case: Case, known: Known, is_ahead: bool, age: int) -> None:
        with self._lock:
            if age == self._age:
                self._remembered.put(case, known)
            self._offer(case, known, is_ahead)
            if self._is_asked(case):
                self._answered()
            if known.trace.oom:
                self.worker.rest(at_once=True)  # what it needs comes first
            here = self._on_show
            if case.is_endless and here is not None and replace(here, is_endless=True).key == case.key:
                self._show_again(here)

    def _offer(self, case: Case, known: Known, is_ahead: bool) -> None:
        """Show it if it was asked for. If that is not even nearly on show, it may be now, or an older one is."""
        with self._lock:
            if self._asked is None:
                return
            is_asked = self._asked.key == case.key
            is_late = self._on_show is None or self._on_show.key != self._asked.key
            if is_asked or (is_late and not self._show_nearly(self._asked) and not is_ahead):
                self._show(case, known)

    def _fail(self, case: Case, error: BaseException) -> None:
        with self._lock:
            self._failed.add(case.key)
            if self._is_asked(case):
                said = f"No prediction: {failure_sentence(error, self._train)}"
                self._on_show = None
                self._screen.look_at(None)  # what is there was predicted for other settings
                self._screen.show(sentence=said)
                self._screen.note_down(said, alert=True)

    # Showing

    def _show(self, case: Case, known: Known) -> None:
        if self._shown != case.key:
            self._shown, self._before = case.key, self.newest
        before, self.newest = self._before, known.trace
        comparable = before if before is not None and self._same_model(known.trace, before) else None
        needed = self._needed(case) if known.trace.oom else None
        self._screen.look_at(self._view(case, known.trace, needed))
        self._say(case, known.trace, before=comparable, warning=known.warning, needed=needed)

    def _show_again(self, case: Case) -> None:
        """Show it with what it needs, if that is known by now."""
        if self._screen.nearly is None and (known := self._remembered.get(case.key)) and known.trace.oom:
            self._show(case, known)

    def _needed(self, case: Case) -> Trace | None:
        """The prediction of a case on a card that has room for everything, if there is one."""
        known = self._remembered.get(replace(case, is_endless=True).key)
        return known and known.trace

    def _show_nearly(self, case: Case) -> bool:
        """Show what two predictions say of it; False if they say nothing."""
        if (about := self._about(case)) is None:
            return False
        self._screen.look_nearly_at(self._view(case, about))
        self._say(case, about, name=f"{ABOUT}: ")
        return True

    def _view(self, case: Case, trace: Trace, needed: Trace | None = None) -> View:
        self._on_show = case
        names, model, room = self._choices.keys(), other_model(case.model), find_card(case.gpu).room
        return View(trace, names, model, outline=needed, budget=self._budget(), room=room)

    def _say(self, case: Case, trace: Trace, *, name: str = "", **told: Any) -> None:
        name += f"{other_model(case.model)}, " if other_model(case.model) else ""
        sentence = prediction_summary(trace, name=name, names=self._choices, budget=self._budget(), **told)
        self._screen.show(sentence=sentence)

    def _same_model(self, trace: Trace, other: Trace) -> bool:
        """Return whether they differ in nothing but what the controls set."""
        names = trace.settings.keys() | other.settings.keys()
        return all(trace.settings.get(n) == other.settings.get(n) for n in names - self._choices.keys())

    def _about(self, case: Case) -> Trace | None:
        """Nearly what will be predicted, from two predictions that differ from it in one number."""
        for name in sorted(filter(self._is_number, self._choices), key=lambda name: name != self.moved):
            value = case.chosen[name]
            if pair := _around(self._remembered.in_line(case, name), name, value):
                first, second = (self._outline(other.key, other.chosen[name]) for other in pair)
                if (about := between(first, second, value, room=find_card(case.gpu).room)) is not None:
                    return replace(about, settings={**about.settings, name: value})
        return None

    def _is_number(self, name: str) -> bool:
        return is_number(self._choices[name]) and name != WORLD_SIZE  # of which each rank has a part

    def _is_learning_of(self, case: Case) -> bool:
        """Return whether what is predicted ahead differs from it in one number, so that it may say something of it."""
        ahead = self._ahead
        return ahead is not None and any(
            ahead.but_for(name) == case.but_for(name) for name in self._choices if self._is_number(name)
        )

    def _read_outline(self, key: Hashable, number: float) -> Outline:
        known = self._remembered.get(key)
        assert known is not None
        return Outline.of(known.trace, number)

    # At rest

    def _next_ahead(self) -> tuple[Work, Hashable] | None:
        """Return the next thing to predict before anybody asks for it, and its key; None where there is none."""
        with self._lock:
            if self._looks_ahead and self._wanted is not None and self._seconds < SECONDS_AHEAD:
                for case in self._candidates(self._wanted):
                    if case.key not in self._remembered and case.key not in self._failed:
                        self._ahead = case
                        return partial(self._predict, case, True), case.key
        return None

    def _candidates(self, here: Case) -> Iterator[Case]:
        """Yield the cases that may be chosen next, the likeliest first."""
        yield here
        if self._remembered.fits(here.key) is False:
            yield replace(here, is_endless=True)  # the learner is looking at it, and asks how much it needs
        cards = _cards_near(here.gpu)
        if self.chose_card:
            yield from (replace(here, gpu=gpu) for gpu in cards)
        for chosen in neighbours(self._choices, here.chosen, self.moved):
            yield (case := replace(here, chosen=chosen))
            if self._remembered.fits(case.key) is False and is_end(self._choices, chosen, self.moved):
                yield replace(case, is_endless=True)  # what does not fit says little of what is below it
        yield from (replace(here, model=model) for model in self._models if model != here.model)
        yield from (replace(here, gpu=gpu) for gpu in cards[:2])


def _cards_near(gpu: str) -> list[str]:
    """The names of cards that stand near it in the menu, the nearest first."""
    card, place = find_card(gpu), list(CARDS).index
    others = (name for name in CARDS if name != card.name)
    return sorted(others, key=lambda name: abs(place(name) - place(card.taken_from or card.name)))[:CARDS_AHEAD]


def _around(line: list[Case], name: str, value: Any) -> tuple[Case, Case] | None:
    """The nearest two with a lower and a higher number, else the nearest and the farthest; None for fewer than two."""
    by_number = {case.chosen[name]: case for case in line}
    below = sorted(number for number in by_number if number < value)
    above = sorted(number for number in by_number if number > value)
    if below and above:
        return by_number[below[-1]], by_number[above[0]]
    numbers = below or above
    return (by_number[numbers[0]], by_number[numbers[-1]]) if len(numbers) > 1 else None
