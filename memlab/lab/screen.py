"""What there is to see of a session, whether or not anybody looks."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memlab.lab.costs import facts
from memlab.lab.drawing import memory_chart
from memlab.lab.rows import Row, add
from memlab.lab.words import difference, heading, origin
from memlab.trace import Trace


class Words(NamedTuple):
    """A line of text; an alert must not be missed."""

    text: str
    alert: bool = False


SILENCE = Words("")


@dataclass(frozen=True)
class View:
    """What the picture of memory shows.

    Attributes:
        trace: the run or the prediction.
        names: the settings to name in its title.
        model: what is predicted, where that is not what Run trains.
        ghosts: earlier runs, the newest last.
        budget: bytes.
        room: bytes that PyTorch can have of the card.
        recorded: whether it ran on another machine.
    """

    trace: Trace
    names: Collection[str] = ()
    model: str = ""
    ghosts: Sequence[Trace] = ()
    budget: int | None = None
    room: int | None = None
    recorded: bool = False

    @property
    def limit(self) -> int | None:
        """The budget, or else what the card has where the peak comes near it: bytes."""
        near = self.room is not None and (self.trace.oom or self.trace.peak_allocated > self.room / 4)
        return self.budget if self.budget is not None else self.room if near else None

    @property
    def heading(self) -> str:
        """What was set."""
        return heading(self.trace, self.names, self.model)

    def draw(self, *, workspace: bool = True) -> str:
        """The picture, as HTML; without ``workspace`` that category has no area."""
        return memory_chart(
            self.trace,
            [(ghost, difference(self.trace, ghost, self.names)) for ghost in self.ghosts],
            heading=self.heading,
            origin=origin(self.trace, recorded=self.recorded),
            facts=facts(self.trace),
            budget=self.budget,
            room=self.room,
            workspace=workspace,
        )


@dataclass
class Screen:
    """Two pictures, the words beside them and what the controls stand at.

    Attributes:
        settings: the value of each control, by name.
        memory, progress: pictures as HTML, ``""`` for none.
        view: what ``memory`` shows, None for nothing.
        workspace: whether ``memory`` shows that category.
        rows: the runs so far, and the predictions that were kept.
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
    view: View | None = None
    workspace: bool = True
    rows: tuple[Row, ...] = ()
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

    def look_at(self, view: View | None) -> None:
        """Draw something else, or the same again."""
        self.view = view
        if view is not None:
            self.show(memory=view.draw(workspace=self.workspace))

    def look_nearly_at(self, view: View) -> None:
        """Draw something for a moment; what can be taken away is what was on show before."""
        self.show(memory=view.draw(workspace=self.workspace))

    def keep(self) -> None:
        """Give the prediction on show a row; runs have one from the beginning."""
        if self.view is None or self.view.trace.source != "predicted":
            self.note_down("Keep is for predictions: move a slider to see one. Runs are kept by themselves.")
        else:
            self.show(rows=add(self.rows, self.view.trace, self.view.names, self.view.model))
            self.note_down("")

    def say(self, text: str, alert: bool = False) -> None:
        """Tell what the run does."""
        self.show(status=Words(text, alert))

    def note_down(self, text: str, alert: bool = False) -> None:
        """Tell what the learner's last move means, or with ``""`` nothing."""
        self.show(note=Words(text, alert))
