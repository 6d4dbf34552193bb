"""The values that a learner may choose for each keyword argument of a ``train`` function, and those refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memlab.errors import BadValue
from memlab.protocol import plain


@dataclass(frozen=True)
class Choice:
    """One setting; a subclass says which values are legal."""

    name: str

    @property
    def label(self) -> str:
        """The name as people read it."""
        return self.name.replace("_", " ")

    @property
    def first(self) -> Any:
        """The value to begin with, where ``train`` has no default."""
        raise NotImplementedError

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` if the value is not one of the legal ones."""
        raise NotImplementedError

    def read(self, said: Any) -> Any:
        """The value that a trace names."""
        return said


@dataclass(frozen=True)
class Range(Choice):
    """A number from ``low`` to ``high``, a whole one if both are whole."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """True if only whole numbers are legal."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def step(self) -> float:
        """The difference between two neighbouring values of its slider."""
        return 1 if self.whole else (self.high - self.low) / 100

    @property
    def first(self) -> float:
        """The value that a panel begins with: the lowest."""
        return self.low

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` unless it is a number in the range."""
        kind = int if self.whole else int | float
        if not isinstance(value, kind) or isinstance(value, bool) or not self.low <= value <= self.high:
            what = "a whole number" if self.whole else "a number"
            raise BadValue(f"{self.label} {value!r} is out of range: give {what} from {self.low} to {self.high}.")


@dataclass(frozen=True)
class OneOf(Choice):
    """One of several values."""

    options: Sequence[Any]

    @property
    def first(self) -> Any:
        """The first of them."""
        return self.options[0]

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` unless it is one of the options."""
        if value not in self.options:
            legal = ", ".join(map(repr, self.options))
            raise BadValue(f"{self.label} {value!r} is not a choice: give one of {legal}.")

    def read(self, said: Any) -> Any:
        """The option that a trace names: what JSON lacks stands there as its text."""
        return next((option for option in self.options if plain(option) == said), said)


@dataclass(frozen=True)
class Doubling(OneOf):
    """One of several numbers, each twice the one before: a slider with the same way between them."""


@dataclass(frozen=True)
class Switch(Choice):
    """On or off."""

    first = False

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` unless it is True or False."""
        if not isinstance(value, bool):
            raise BadValue(f"{self.label} {value!r} is not a switch: give True or False.")


def make_choice(name: str, choices: Any) -> Choice:
    """The choice for a setting.

    Args:
        name: of the keyword argument.
        choices: ``(low, high)`` for a number, a list for one of its values, ``bool`` for on or off.

    Raises:
        BadValue: for anything else.
    """
    if choices is bool:
        return Switch(name)
    if isinstance(choices, list) and choices:
        return OneOf(name, choices)
    numbers = isinstance(choices, tuple) and len(choices) == 2 and all(isinstance(end, int | float) for end in choices)
    if numbers and choices[0] < choices[1]:
        return Range(name, *choices)
    raise BadValue(
        f"{name}={choices!r} makes no control: give (low, high) for a slider, a list for a menu, or bool for a switch."
    )
