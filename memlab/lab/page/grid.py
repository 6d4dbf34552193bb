"""The settings that a page shows, and the prediction for each combination of them."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from memlab.errors import BadValue, MemlabError
from memlab.lab.checks import other_model
from memlab.lab.choices import Choice, Doubling, OneOf, Range, Switch
from memlab.lab.export import picture
from memlab.lab.ranks import WORLD_SIZE, of_train
from memlab.lab.screen import View
from memlab.lab.session import Session
from memlab.lab.source import source
from memlab.lab.words import prediction_summary
from memlab.run import predict
from memlab.text import message
from memlab.vgpu import find_card

CARD = "gpu"
MOST_POINTS = 240
LEAST_PLACES, MOST_PLACES = 3, 17  # of a slider


@dataclass(frozen=True)
class Axis:
    """One control of a page: the values that it can stand at, as ``"slider"``, ``"menu"`` or ``"switch"``."""

    name: str
    label: str
    kind: str
    values: tuple[Any, ...]
    start: int = 0


@dataclass(frozen=True)
class Grid:
    """All that a page can show: a step and a sentence for each combination of the axes' values.

    Combinations are counted as numbers are, the last axis first.

    Attributes:
        model: what was predicted, ``""`` for the model that Run trains.
        shown: as :meth:`memlab.lab.screen.View.to_plain` gives them; None where there is no prediction.
        code: the lines of ``train`` and the number of the first.
        still: the step that it begins with as HTML, for browsers without JavaScript.
    """

    title: str
    model: str
    axes: tuple[Axis, ...]
    shown: tuple[dict[str, Any] | None, ...]
    sentences: tuple[str, ...]
    code: dict[str, Any] | None
    still: str

    @property
    def start(self) -> int:
        """The number of the combination that it begins with."""
        return _number(self.axes)


def choose_axes(session: Session, cards: Sequence[str], most: int = MOST_POINTS) -> tuple[Axis, ...]:
    """The controls of a panel, with so few places for each slider that there are at most so many combinations.

    The panel's own card is always among the cards. Where a slider would have fewer than three places, sliders whose
    steps double lose some of theirs too, and then the last of the cards go.

    Raises:
        BadValue: menus and switches alone have more combinations, or a card is unknown.
    """
    names = [find_card(card).name for card in cards]
    if session.gpu not in names:
        names.insert(0, session.gpu)
    choices = session.choices.values()
    sliders: list[Choice] = [choice for choice in choices if isinstance(choice, Range)]
    if _room(most, choices, sliders, names) < LEAST_PLACES ** len(sliders):
        sliders = [choice for choice in choices if isinstance(choice, Range | Doubling)]
    while names[1:] and _room(most, choices, sliders, names) < LEAST_PLACES ** len(sliders):
        names.remove([name for name in names if name != session.gpu][-1])
    room = _room(most, choices, sliders, names)
    if room < 2 ** len(sliders):
        raise BadValue(f"{most} points are too few for the menus of {session.title!r}: allow more.")
    places = min(MOST_PLACES, math.floor(room ** (1 / max(len(sliders), 1)) + 1e-9))
    chosen = session.screen.settings
    axes = [_axis(choice, chosen[choice.name], places if choice in sliders else None) for choice in choices]
    return (*axes, Axis(CARD, "predict for", "menu", tuple(names), names.index(session.gpu)))


def _room(most: int, choices: Iterable[Choice], sliders: Collection[Choice], cards: Sequence[str]) -> int:
    """How many combinations of the sliders there may be."""
    menus = [len(choice.options) if isinstance(choice, OneOf) else 2 for choice in choices if choice not in sliders]
    return most // (math.prod(menus) * len(cards))


def _axis(choice: Choice, value: Any, places: int | None) -> Axis:
    """A control with all of its places, or with so many."""
    if isinstance(choice, Switch):
        return Axis(choice.name, choice.label, "switch", (False, True), int(value))
    if isinstance(choice, Range):
        assert places is not None
        return Axis(
            choice.name, choice.label, "slider", *_thinned(choice.low, choice.high, choice.whole, value, places)
        )
    assert isinstance(choice, OneOf)
    kind, options = "slider" if isinstance(choice, Doubling) else "menu", choice.options
    if places is None or places >= len(options):
        return Axis(choice.name, choice.label, kind, tuple(options), options.index(value))
    kept, start = _thinned(0, len(options) - 1, True, options.index(value), places)
    return Axis(choice.name, choice.label, kind, tuple(options[int(place)] for place in kept), start)


def _thinned(low: float, high: float, whole: bool, value: float, places: int) -> tuple[tuple[float, ...], int]:
    """So many values: both ends, where the panel begins, and others at equal distances; and the place of that one."""
    steps = [low + (high - low) * i / (places - 1) for i in range(places)]
    values = sorted({round(step) if whole else step for step in steps})
    inner = range(1, len(values) - 1) if len(values) > 2 and value not in (low, high) else range(len(values))
    nearest = min(inner, key=lambda i: abs(values[i] - value))
    if 0 < nearest < len(values) - 1:
        values[nearest] = value
    return tuple(values), nearest


def combinations(axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """Every combination of values, by name, in the order in which a :class:`Grid` counts them."""
    for values in product(*(axis.values for axis in axes)):
        yield dict(zip((axis.name for axis in axes), values, strict=True))


def predict_grid(session: Session, axes: Sequence[Axis], on_point: Callable[[int], None] = lambda number: None) -> Grid:
    """Predict the panel's model for each combination.

    Args:
        on_point: called with the number of points done, after each.
    """
    shown, sentences, start, still = [], [], _number(axes), ""
    for number, chosen in enumerate(combinations(axes)):
        view, sentence = point(session, chosen)
        shown.append(view.to_plain() if view is not None else None)
        sentences.append(sentence)
        if number == start and view is not None:
            still = picture(view).html()
        on_point(number + 1)
    model = other_model(session.model)
    return Grid(session.title, model, tuple(axes), tuple(shown), tuple(sentences), source(session.train), still)


def _number(axes: Sequence[Axis]) -> int:
    number = 0
    for axis in axes:
        number = number * len(axis.values) + axis.start
    return number


def point(session: Session, chosen: Mapping[str, Any]) -> tuple[View | None, str]:
    """The step and the sentence of one combination; where the loop itself refuses it, its words alone."""
    settings = {name: value for name, value in chosen.items() if name != CARD} | session.models[session.model]
    try:
        trace = predict(session.train, gpu=chosen[CARD], world_size=settings.get(WORLD_SIZE), **of_train(settings))
    except MemlabError as error:
        return None, f"No prediction: {error}"
    except Exception as error:  # the loop's own
        return None, f"Not possible with these settings: {type(error).__name__}: {message(error)}"
    view = View(trace, session.choices.keys(), other_model(session.model), room=find_card(trace.device).room)
    return view, prediction_summary(trace, None)
