"""Sliders, boxes and menus for the keyword arguments of a ``train`` function."""

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from memlab.errors import BadValue

LABEL_WIDTH = "9.5em"


class Control:
    """One setting on the panel: ``widget`` shows it, ``value`` is it.

    Subclasses say which values are legal. ``on_change`` is called with no arguments after the value
    has changed, ``on_refusal`` with a :class:`BadValue` when the learner typed something illegal.
    """

    widget: widgets.Widget

    def __init__(self, name: str):
        self.name = name
        self.on_change: Callable[[], None] = lambda: None
        self.on_refusal: Callable[[BadValue], None] = lambda refusal: None

    @property
    def label(self) -> str:
        """The name as people read it."""
        return self.name.replace("_", " ")

    @property
    def value(self) -> Any:
        """The value shown now."""
        return self.widget.value

    @value.setter
    def value(self, value: Any) -> None:
        self.check(value)
        self.widget.value = value

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` if the value is not one of the legal ones."""

    def _changed(self, change) -> None:
        self.on_change()


class RangeControl(Control):
    """A number between two others: a slider and a box to type it."""

    def __init__(self, name: str, low: float, high: float, default: float):
        super().__init__(name)
        self.low, self.high = low, high
        self._whole = isinstance(low, int) and isinstance(high, int)
        slider, box = (widgets.IntSlider, widgets.IntText) if self._whole else (widgets.FloatSlider, widgets.FloatText)
        step = 1 if self._whole else (high - low) / 100
        self.check(default)
        self._slider = slider(
            default,
            min=low,
            max=high,
            step=step,
            readout=False,
            description=self.label,
            style={"description_width": LABEL_WIDTH},
            layout={"flex": "1 1 auto", "width": "auto"},
        )
        # Typed values outside the range must be refused in words, which a bounded box would not do.
        # Its name is for screen readers; the eye has the slider's.
        self._box = box(
            default,
            continuous_update=False,
            description=f"{self.label}, as a number",
            style={"description_width": "0px"},
            layout={"width": "5em", "flex": "0 0 auto"},
        )
        self._slider.observe(self._slid, "value")
        self._box.observe(self._typed, "value")
        self.widget = widgets.HBox([self._slider, self._box])

    @property
    def value(self) -> float:
        """The number shown now."""
        return self._slider.value

    @value.setter
    def value(self, value: float) -> None:
        self.check(value)
        self._slider.value = value

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` unless it is a number in the range."""
        kind = int if self._whole else int | float
        if not isinstance(value, kind) or isinstance(value, bool) or not self.low <= value <= self.high:
            what = "a whole number" if self._whole else "a number"
            raise BadValue(f"{self.label} {value!r} is out of range: give {what} from {self.low} to {self.high}.")

    def _slid(self, change) -> None:
        self._box.value = self._slider.value
        self.on_change()

    def _typed(self, change) -> None:
        try:
            self.value = self._box.value
        except BadValue as refusal:
            self._box.value = self._slider.value
            self.on_refusal(refusal)


class ChoiceControl(Control):
    """One of several values: a menu."""

    def __init__(self, name: str, options: list, default: Any):
        super().__init__(name)
        self.options = options
        self.check(default)
        self.widget = widgets.Dropdown(
            options=[(str(option), option) for option in options],
            value=default,
            description=self.label,
            style={"description_width": LABEL_WIDTH},
            layout={"width": "auto"},
        )
        self.widget.observe(self._changed, "value")

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` unless it is one of the options."""
        if value not in self.options:
            legal = ", ".join(map(repr, self.options))
            raise BadValue(f"{self.label} {value!r} is not a choice: give one of {legal}.")


class SwitchControl(Control):
    """On or off: a box to tick."""

    def __init__(self, name: str, default: bool):
        super().__init__(name)
        self.check(default)
        self.widget = widgets.Checkbox(default, description=self.label, style={"description_width": LABEL_WIDTH})
        self.widget.observe(self._changed, "value")

    def check(self, value: Any) -> None:
        """Raise :class:`BadValue` unless it is True or False."""
        if not isinstance(value, bool):
            raise BadValue(f"{self.label} {value!r} is not a switch: give True or False.")


def make_control(name: str, choices: Any, default: Any) -> Control:
    """The control for a setting.

    Args:
        name: of the keyword argument.
        choices: ``(low, high)`` for a slider, a list for a menu, ``bool`` for a box to tick.
        default: the value to begin with.

    Raises:
        BadValue: for other choices, or a default that is not among them.
    """
    if choices is bool:
        return SwitchControl(name, default)
    if isinstance(choices, list) and choices:
        return ChoiceControl(name, choices, default)
    numbers = isinstance(choices, tuple) and len(choices) == 2 and all(isinstance(end, int | float) for end in choices)
    if numbers and choices[0] < choices[1]:
        return RangeControl(name, *choices, default)
    raise BadValue(
        f"{name}={choices!r} makes no control: give (low, high) for a slider, a list for a menu, or bool for a switch."
    )
