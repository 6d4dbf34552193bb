"""What there is to see of a session, whether or not anybody looks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memlab.trace import Trace


class Words(NamedTuple):
    """A line of text; an alert must not be missed."""

    text: str
    alert: bool = False


SILENCE = Words("")


@dataclass
class Screen:
    """Two pictures, the words beside them and what the controls stand at.

    Attributes:
        settings: the value of each control, by name.
        memory, progress: pictures as SVG, ``""`` for none.
        sentence: what the pictures show, in words.
        status: what the run does.
        note: what the learner's last move means.
        pending: what is being predicted and is not yet on show, ``""`` for nothing.
        recorded: the recorded run on show, None where there is none.
        on_change: called with the name of an attribute after it has changed, in the thread that changed it.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    memory: str = ""
    progress: str = ""
    sentence: str = ""
    status: Words = SILENCE
    note: Words = SILENCE
    pending: str = ""
    recorded: Trace | None = None
    on_change: Callable[[str], None] = lambda name: None

    def show(self, **parts: Any) -> None:
        """Change some of the attributes, and tell."""
        for name, value in parts.items():
            setattr(self, name, value)
            self.on_change(name)

    def say(self, text: str, alert: bool = False) -> None:
        """Tell what the run does."""
        self.show(status=Words(text, alert))

    def note_down(self, text: str, alert: bool = False) -> None:
        """Tell what the learner's last move means, or with ``""`` nothing."""
        self.show(note=Words(text, alert))
