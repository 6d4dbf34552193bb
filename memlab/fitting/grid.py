"""The combinations of settings among which to choose."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from memlab.errors import BadValue

WORTH_BISECTING = 4  # values; of fewer each is tried


@dataclass(frozen=True)
class Grid:
    """All combinations: of menus each, and along one axis of numbers as many as are needed.

    Attributes:
        fixed: settings with one value.
        menus: settings each of whose values is tried with all others.
        axis: the setting that is bisected, or ``""``.
        values: of the axis, ascending; one None without an axis.
    """

    fixed: Mapping[str, Any]
    menus: Mapping[str, Sequence[Any]]
    axis: str
    values: Sequence[Any]

    @property
    def size(self) -> int:
        """Number of combinations in the grid."""
        return prod(map(len, self.menus.values())) * len(self.values)

    @property
    def first(self) -> dict[str, Any]:
        """The first value of each menu and the last of the axis: what was wished for."""
        return {name: values[0] for name, values in self.menus.items()} | self.at(self.values[-1])

    def lines(self) -> Iterator[dict[str, Any]]:
        """The combinations of the menus; each is a line along the axis."""
        for values in product(*self.menus.values()):
            yield dict(zip(self.menus, values, strict=True))

    def at(self, value: Any) -> dict[str, Any]:
        """The axis at this value, as settings."""
        return {self.axis: value} if self.axis else {}


def make_grid(choices: Mapping[str, Any]) -> Grid:
    """The grid for ``(low, high)``, lists, ``bool`` and single values.

    Raises:
        BadValue: a choice without a value, or a range that is none.
    """
    wide = {name: _values(name, given) for name, given in choices.items() if _is_choice(given)}
    fixed = {name: given for name, given in choices.items() if name not in wide}
    numeric = {name: values for name, values in wide.items() if _is_ascending(values)}
    axis = max(numeric, key=lambda name: ("batch" in name, len(numeric[name])), default="")
    menus = {name: values for name, values in wide.items() if name != axis}
    return Grid(fixed, menus, axis, wide[axis] if axis else [None])


def _is_choice(given: Any) -> bool:
    return given is bool or isinstance(given, tuple | list | range)


def _values(name: str, given: Any) -> Sequence[Any]:
    if given is bool:
        return [False, True]
    if isinstance(given, tuple):
        whole = len(given) == 2 and all(type(end) is int for end in given)
        if not whole or given[0] > given[1]:
            raise BadValue(f"{name}={given!r} is no range: give (low, high) in whole numbers, or a list of values.")
        return range(given[0], given[1] + 1)
    if not given:
        raise BadValue(f"{name}={given!r} has no value to choose: give (low, high), or a list of one or more values.")
    return given


def _is_ascending(values: Sequence[Any]) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return numbers and len(values) >= WORTH_BISECTING and list(values) == sorted(values)
