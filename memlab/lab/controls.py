"""Sliders, boxes and menus for the settings of a ``train`` function."""

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from memlab.errors import BadValue
from memlab.lab.choices import Choice, Doubling, OneOf, Range, Switch

LABEL_WIDTH = "9.5em"


def explain(widget: widgets.Widget, tip: str) -> None:
    """Say something of a widget when a mouse rests on it; ipywidgets 7 and 8 have two names for that."""
    setattr(widget, "tooltip" if widget.has_trait("tooltip") else "description_tooltip", tip)


class Control:
    """One setting on the panel: ``widget`` shows it, ``value`` is it.

    ``on_change`` is called with no arguments after the value has changed, ``on_refusal`` with a :class:`BadValue` when
    the learner typed something illegal.
    """

    widget: widgets.Widget

    def __init__(self, choice: Choice):
        self.choice = choice
        self.on_change: Callable[[], None] = lambda: None
        self.on_refusal: Callable[[BadValue], None] = lambda refusal: None

    @property
    def value(self) -> Any:
        """The value shown now."""
        return self.widget.value

    @value.setter
    def value(self, value: Any) -> None:
        self.choice.check(value)
        self.widget.value = value

    def _changed(self, change: Any) -> None:
        self.on_change()


class RangeControl(Control):
    """A number between two others: a slider and a box to type it."""

    def __init__(self, choice: Range, value: float):
        super().__init__(choice)
        slider, box = (widgets.IntSlider, widgets.IntText) if choice.whole else (widgets.FloatSlider, widgets.FloatText)
        self._slider = slider(
            value,
            min=choice.low,
            max=choice.high,
            step=choice.step,
            readout=False,
            description=choice.label,
            style={"description_width": LABEL_WIDTH},
            layout={"flex": "1 1 auto", "width": "auto"},
        )
        # Typed values outside the range must be refused in words, which a bounded box would not do.
        # Its name is for screen readers; the eye has the slider's.
        self._box = box(
            value,
            continuous_update=False,
            description=f"{choice.label}, as a number",
            style={"description_width": "0px"},
            layout={"width": "5em", "flex": "0 0 auto"},
        )
        explain(self._slider, f"{choice.label}, from {choice.low} to {choice.high}")
        explain(self._box, f"{choice.label}, from {choice.low} to {choice.high}: type it")
        self._slider.observe(self._slid, "value")
        self._box.observe(self._typed, "value")
        self.widget = widgets.HBox([self._slider, self._box])

    @property
    def value(self) -> float:
        """The number shown now."""
        return self._slider.value

    @value.setter
    def value(self, value: float) -> None:
        self.choice.check(value)
        self._slider.value = value

    def _slid(self, change: Any) -> None:
        self._box.value = self._slider.value
        self.on_change()

    def _typed(self, change: Any) -> None:
        try:
            self.value = self._box.value
        except BadValue as refusal:
            self._box.value = self._slider.value
            self.on_refusal(refusal)


class MenuControl(Control):
    """One of several values: a menu, or a slider where they double."""

    def __init__(self, choice: OneOf, value: Any):
        super().__init__(choice)
        self.widget = (widgets.SelectionSlider if isinstance(choice, Doubling) else widgets.Dropdown)(
            options=[(str(option), option) for option in choice.options],
            value=value,
            description=choice.label,
            style={"description_width": LABEL_WIDTH},
            layout={"width": "auto"},
        )
        explain(self.widget, f"{choice.label}: one of {', '.join(map(str, choice.options))}")
        self.widget.observe(self._changed, "value")


class SwitchControl(Control):
    """On or off: a box to tick."""

    def __init__(self, choice: Switch, value: bool):
        super().__init__(choice)
        self.widget = widgets.Checkbox(value, description=choice.label, style={"description_width": LABEL_WIDTH})
        explain(self.widget, f"{choice.label}: on or off")
        self.widget.observe(self._changed, "value")


def make_control(choice: Choice, value: Any) -> Control:
    """The control for a choice, at a legal value."""
    match choice:
        case Range():
            return RangeControl(choice, value)
        case OneOf():
            return MenuControl(choice, value)
        case Switch():
            return SwitchControl(choice, value)
    raise BadValue(f"{choice!r} has no control: give a Range, a OneOf or a Switch.")
