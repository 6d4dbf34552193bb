"""The choices that a learner may make next, which are predicted while nothing else is to be done."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from memlab.lab.choices import Choice, Doubling, OneOf, Range, Switch

NEAR = 4  # values to each side of the one chosen


def is_number(choice: Choice) -> bool:
    """Return True if the values of a choice are numbers, between which there may be others."""
    return isinstance(choice, Range | Doubling)


def neighbours(choices: Mapping[str, Choice], chosen: Mapping[str, Any], moved: str | None) -> Iterator[dict[str, Any]]:
    """Yield the values of all controls that may be chosen next, the likeliest first.

    These are the ends of the slider that moved last, its values nearest to the present one, then one step of each other
    control.

    Args:
        chosen: what is chosen now.
        moved: the control that was moved last; None: none was.
    """
    if not choices:
        return
    first = _likeliest(choices, moved)
    yield from ({**chosen, first: value} for value in _nearest_and_ends(choices[first], chosen[first]))
    for name in choices:
        if name != first:
            steps = _by_distance(choices[name], chosen[name])[:2]
            yield from ({**chosen, name: value} for value in steps)


def is_end(choices: Mapping[str, Choice], chosen: Mapping[str, Any], moved: str | None) -> bool:
    """Return True if the slider that moved last is at one of its ends."""
    name = _likeliest(choices, moved)
    return is_number(choices[name]) and chosen[name] in ends(choices[name])


def _likeliest(choices: Mapping[str, Choice], moved: str | None) -> str:
    return moved if moved is not None else next(iter(choices))


def _nearest_and_ends(choice: Choice, value: Any) -> list[Any]:
    nearest = _by_distance(choice, value)
    if not is_number(choice):
        return nearest
    # What is between the ends can be shown, nearly, once they are known.
    low, high = ends(choice)
    return [end for end in (low, high) if end != value] + [other for other in nearest if other not in (low, high)]


def ends(choice: Choice) -> tuple[float, float]:
    """The lowest and the highest number of a slider."""
    if isinstance(choice, Range):
        return choice.low, choice.high
    assert isinstance(choice, Doubling)
    return choice.options[0], choice.options[-1]


def _by_distance(choice: Choice, value: Any) -> list[Any]:
    """Its other values, the nearest first."""
    if isinstance(choice, Switch):
        return [not value]
    if isinstance(choice, OneOf):
        options = list(choice.options)
        here = options.index(value)
        above, below = options[here + 1 :], options[:here][::-1]
    else:
        assert isinstance(choice, Range)
        steps = [choice.step * n for n in range(1, NEAR + 1)]
        above = [round(value + step, 9) for step in steps if value + step <= choice.high]
        below = [round(value - step, 9) for step in steps if value - step >= choice.low]
    return _in_turn(above, below)


def _in_turn(above: list[Any], below: list[Any]) -> list[Any]:
    both = min(len(above), len(below))
    pairs = chain.from_iterable(zip(above, below, strict=False))
    return [*pairs, *above[both:], *below[both:]]
