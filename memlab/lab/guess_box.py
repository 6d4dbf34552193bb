"""The box on a notebook's screen that a guess is written into."""

from collections.abc import Callable
from html import escape

import ipywidgets as widgets

from memlab.errors import BadValue
from memlab.lab.accessibility import access


class GuessBox(widgets.VBox):
    """The question, a place for the answer, and what is known of it so far."""

    def __init__(self, question: str, choices: tuple[str, ...] | None, *, answer: Callable[[str], str]):
        """``answer`` takes what was written and gives what to say of it."""
        self._take = answer
        self._answer = _choices(choices) if choices else _number()
        self._said = widgets.HTML()
        button = widgets.Button(description="Guess", button_style="primary", layout={"width": "7em"})
        button.on_click(lambda _: self._submit())
        if not choices:  # Enter will do; of choices an arrow key takes one after the other
            self._answer.observe(lambda _: self._submit(), "value")
        asked = widgets.HTML(access("memlab-guess") + f"<b>{escape(question)}</b>")
        super().__init__([asked, widgets.HBox([self._answer, button]), self._said])
        self.add_class("memlab-guess")

    def _submit(self) -> None:
        if self._answer.value in (None, ""):
            return
        try:
            self._said.value = escape(self._take(self._answer.value))
        except BadValue as refusal:
            self._said.value = escape(str(refusal))


def _number() -> widgets.Text:
    return widgets.Text(
        placeholder="for example 5 GiB",
        continuous_update=False,
        description="your guess",
        layout={"width": "20em"},
    )


def _choices(choices: tuple[str, ...]) -> widgets.RadioButtons:
    return widgets.RadioButtons(options=choices, value=None, description="your guess", layout={"width": "auto"})
