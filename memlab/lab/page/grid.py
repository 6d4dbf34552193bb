"""The settings that a page shows, the prediction for each combination of them, and runs that it replays."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

from memlab.errors import BadValue, MemlabError
from memlab.lab.checks import other_model
from memlab.lab.choices import Choice, Doubling, OneOf, Range
from memlab.lab.export import picture
from memlab.lab.ranks import open_prediction
from memlab.lab.screen import View
from memlab.lab.session import Session
from memlab.lab.source import source
from memlab.lab.words import prediction_summary
from memlab.text import message
from memlab.trace import Trace
from memlab.vgpu import find_card

CARD, MODEL = "gpu", "of-model"  # axes beside the settings of train, which may have a "model" among them
MOST_POINTS = 256
LEAST_PLACES, MOST_PLACES = 3, 17  # of a slider
LEAST_OPTIONS = 2  # of a menu


@dataclass(frozen=True)
class Axis:
    """One control of a page: the values that it can stand at, as ``"slider"``, ``"menu"`` or ``"switch"``."""

    name: str
    label: str
    kind: str
    values: tuple[Any, ...]
    start: int = 0


class Point(NamedTuple):
    """The step of one combination, as :meth:`memlab.lab.screen.View.to_plain` gives it or None, and its sentence."""

    shown: dict[str, Any] | None
    sentence: str


@dataclass(frozen=True)
class Grid:
    """All that a page can show: a step and a sentence for each combination of the axes' values.

    Combinations are counted as numbers are, the last axis first.

    Attributes:
        shown: as :meth:`memlab.lab.screen.View.to_plain` gives them; None where there is no prediction.
        code: the lines of ``train`` and the number of the first.
        still: the step that it begins with as HTML, for browsers without JavaScript.
        runs: as :func:`memlab.lab.page.recording.record` gives them; the first is of the settings that it begins with.
    """

    title: str
    axes: tuple[Axis, ...]
    shown: tuple[dict[str, Any] | None, ...]
    sentences: tuple[str, ...]
    code: dict[str, Any] | None
    still: str
    runs: tuple[dict[str, Any], ...] = ()

    @property
    def start(self) -> int:
        """The number of the combination that it begins with."""
        number = 0
        for axis in self.axes:
            number = number * len(axis.values) + axis.start
        return number


def choose_axes(
    session: Session, cards: Sequence[str], most: int = MOST_POINTS, named: Sequence[tuple[str, Any]] = ()
) -> tuple[Axis, ...]:
    """The controls of a panel, with so few places for each slider that there are at most so many combinations.

    Menus are whole where there is room for all of them: else the longest lose values first, those that are not named
    before those that are. A slider has where the panel begins and the end that is further away, and the panel's own
    card is there. As long as there is room come, in this order: the other ends, what is named, a third place for each
    slider, the cards, all steps of a slider whose steps double, and values in the widest gaps.

    Args:
        named: values that a text speaks of, each with the name of its control, the most important first. With a
            :data:`MODEL` among them there is a menu of models: the first, those that are named, and what Run trains.

    Raises:
        BadValue: what must be there has more combinations, or a card is unknown.
    """
    order = [find_card(card).name for card in cards]
    places = _Places(session, most, named)
    ends = [(name, end) for name, choice in places.sliders.items() for end in _ends(choice)]
    for name, value in [*ends, *named]:
        places.add(name, value)
    for name in places.sliders:
        while places.widen(name, LEAST_PLACES):
            pass
    for card in order:
        places.add(CARD, card)
    for name, choice in places.sliders.items():
        if isinstance(choice, Doubling):
            places.add(name, *choice.options)
    while any(places.widen(name, MOST_PLACES) for name in sorted(places.sliders, key=places.count)):
        pass
    return tuple(places.axes(order))


class _Places:
    """The values of each control that are on a page: of all combinations no more than ``most``."""

    def __init__(self, session: Session, most: int, named: Sequence[tuple[str, Any]]):
        self.session, self.most = session, most
        self.settings, choices = session.screen.settings, session.choices
        self.kept = {name: _least(choice, self.settings[name]) for name, choice in choices.items()}
        self.sliders = {name: choice for name, choice in choices.items() if isinstance(choice, Range | Doubling)}
        if any(name == MODEL for name, _ in named):
            self.kept[MODEL] = _once(session.model, list(session.models)[-1])
        self.kept[CARD] = [session.gpu]
        menus = {
            name: _once(self.settings[name], *(value for other, value in named if other == name), *choice.options)
            for name, choice in choices.items()
            if isinstance(choice, OneOf) and name not in self.sliders
        }
        while math.prod(map(len, self.kept.values())) > most:
            longest = max(menus, key=self.count, default="")
            if not longest or self.count(longest) <= LEAST_OPTIONS:
                raise BadValue(f"{most} points are too few for the menus of {session.title!r}: allow more.")
            self.kept[longest] = menus[longest][: self.count(longest) - 1]

    def count(self, name: str) -> int:
        """Return the number of values that a control has."""
        return len(self.kept[name])

    def add(self, name: str, *values: Any) -> bool:
        """Add values, if there is room for all of them; whether any were added."""
        grown = _once(*self.kept[name], *values)
        others = math.prod(len(kept) for other, kept in self.kept.items() if other != name)
        if len(grown) == self.count(name) or others * len(grown) > self.most:
            return False
        self.kept[name] = grown
        return True

    def widen(self, name: str, places: int) -> bool:
        """Add a value in the widest gap of a slider with fewer places than that; whether one was added."""
        value = _between(self.sliders[name], self.kept[name]) if self.count(name) < places else None
        return value is not None and self.add(name, value)

    def axes(self, cards: Sequence[str]) -> Iterator[Axis]:
        """The controls, the cards in this order."""
        for name, choice in self.session.choices.items():
            values = sorted(self.kept[name], key=choice.options.index if isinstance(choice, OneOf) else None)
            kind = "slider" if name in self.sliders else "menu" if isinstance(choice, OneOf) else "switch"
            yield Axis(name, choice.label, kind, tuple(values), values.index(self.settings[name]))
        if MODEL in self.kept:
            models = [name for name in self.session.models if name in self.kept[MODEL]]
            yield Axis(MODEL, "model", "menu", tuple(models), models.index(self.session.model))
        names = sorted(self.kept[CARD], key=lambda name: cards.index(name) if name in cards else -1)
        yield Axis(CARD, "predict for", "menu", tuple(names), names.index(self.session.gpu))


def _once(*values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


def _ends(choice: Choice) -> tuple[Any, Any]:
    """Of a slider."""
    if isinstance(choice, Range):
        return choice.low, choice.high
    assert isinstance(choice, OneOf)
    return choice.options[0], choice.options[-1]


def _least(choice: Choice, value: Any) -> list[Any]:
    """Return the values that a control must have: all of a menu; of a slider the first and the end further away."""
    if isinstance(choice, Range | Doubling):
        place = choice.options.index if isinstance(choice, Doubling) else float
        return _once(value, max(_ends(choice), key=lambda end: abs(place(end) - place(value))))
    return list(choice.options) if isinstance(choice, OneOf) else [False, True]


def _between(choice: Choice, kept: Sequence[Any]) -> Any:
    """A value in the middle of a slider's widest gap, if it can be a round one; None where there is no gap."""
    options = choice.options if isinstance(choice, Doubling) else None
    places = sorted(map(options.index, kept) if options else kept)
    low, high = max(pairwise(places), key=lambda gap: gap[1] - gap[0])
    if options:
        return options[(low + high) // 2] if high - low > 1 else None
    if not (isinstance(choice, Range) and choice.whole):
        return (low + high) / 2
    third = max((high - low) // 3, 1)
    inner = range(low + third, high - third + 1)
    return max(inner, key=lambda value: (value & -value, -abs(2 * value - low - high)), default=None)


def combinations(axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """Every combination of values, by name, in the order in which a :class:`Grid` counts them."""
    for values in product(*(axis.values for axis in axes)):
        yield dict(zip((axis.name for axis in axes), values, strict=True))


def point(session: Session, chosen: Mapping[str, Any]) -> Point:
    """The step and the sentence of one combination; where the loop itself refuses it, its words alone."""
    name = chosen.get(MODEL, session.model)
    settings = {key: value for key, value in chosen.items() if key not in (CARD, MODEL)} | session.models[name]
    open_run = partial(open_prediction, session.train, settings, chosen[CARD])
    try:
        trace = open_run().complete()
        needed = open_run(is_endless=True).complete() if trace.oom else None
    except MemlabError as error:
        return Point(None, f"No prediction: {error}")
    except Exception as error:  # the loop's own
        return Point(None, f"Not possible with these settings: {type(error).__name__}: {message(error)}")
    view = _view(session, trace, other_model(name), needed)
    return Point(view.to_plain(), prediction_summary(trace, needed=needed))


def predict_grid(
    session: Session,
    axes: Sequence[Axis],
    ask: Callable[[Session, Mapping[str, Any]], Point] = point,
    runs: Sequence[dict[str, Any]] = (),
) -> Grid:
    """Predict each combination.

    Args:
        ask: what predicts one of them.
    """
    shown, sentences = zip(*(ask(session, chosen) for chosen in combinations(axes)), strict=True)
    grid = Grid(session.title, tuple(axes), shown, sentences, source(session.train), "", tuple(runs))
    first = shown[grid.start]
    if first is None:
        return grid
    trace = Trace.from_json(json.dumps(first["trace"]))
    return replace(grid, still=picture(_view(session, trace, other_model(session.model))).html())


def _view(session: Session, trace: Trace, model: str, needed: Trace | None = None) -> View:
    return View(trace, session.choices.keys(), model, outline=needed, room=find_card(trace.device).room)
