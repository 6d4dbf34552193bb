"""All there is to see of a session, whether or not anybody looks."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memlab.categories import Category
from memlab.lab.costs import cost, facts
from memlab.lab.rows import Row, add
from memlab.lab.words import heading, origin, why, without_workspace
from memlab.trace import Trace
from memlab.units import format_bytes


class Words(NamedTuple):
    """A line of text; an alert must not be missed."""

    text: str
    alert: bool = False


SILENCE = Words("")


@dataclass(frozen=True)
class View:
    """A step as the picture shows it.

    Attributes:
        trace: the run or the prediction.
        names: the settings to name in its title.
        model: the model's name, where the panel has more than one.
        outline: to draw behind a run: its prediction. Behind a prediction that runs out of memory: the same step on a
            card with room for everything.
        budget: bytes.
        room: bytes that PyTorch can have of the card.
        recorded: whether it ran on another machine.
    """

    trace: Trace
    names: Collection[str] = ()
    model: str = ""
    outline: Trace | None = None
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
        """The settings on show, as the panel's heading."""
        return heading(self.trace, self.names, self.model)

    def to_plain(self, *, workspace: bool = True) -> dict[str, Any]:
        """The step with its words, as ``browser/picture.js`` draws it; without ``workspace`` that has no area."""
        device = self.trace.device
        limits = [(self.room, f"{device} · ", f"the {device}"), (self.budget, "budget ", "the budget")]
        return {
            "trace": self.trace.to_plain(),
            "heading": self.heading,
            "model": self.model,
            "origin": origin(self.trace, recorded=self.recorded),
            "facts": facts(self.trace),
            "why": why(self.trace),
            "seconds": cost(self.trace).seconds,
            "limits": [[count, f"{line}{format_bytes(count)}", name] for count, line, name in limits if count],
            "is_idle": self.trace.holds_much_idle,
            "hidden": [] if workspace else [str(Category.WORKSPACE)],
            "outline": _outline(self.outline, self.trace) if self.outline is not None else None,
        }


def _outline(predicted: Trace, run: Trace) -> dict[str, Any]:
    """A prediction to compare a run with; the CPU has no allocator, so there only tensors are compared."""
    if run.source == "predicted":
        return {"trace": predicted.to_plain(), "name": "with room enough (dashed):", "mark": ""}
    if run.peak_reserved is None:
        return {
            "trace": without_workspace(predicted).to_plain(),
            "name": "predicted (dashed), without workspace:",
            "mark": "predicted",
        }
    return {"trace": predicted.to_plain(), "name": f"predicted for {predicted.device} (dashed):", "mark": "predicted"}


@dataclass
class Screen:
    """A picture, the words beside it and what the controls stand at.

    Attributes:
        settings: the value of each control, by name.
        model: the name of the model on show.
        gpu: the name of the card that predictions are for.
        view: the step on show, None for nothing.
        nearly: a step that is shown for a moment in its place, until it is predicted exactly.
        run: how far a run has come, as :func:`memlab.lab.progress.progress` gives it; None for none.
        action: the words on the button that begins a run, or ends it.
        workspace: whether the picture has an area for it.
        rows: the runs so far, and the predictions that were kept.
        sentence: what the picture shows, in words.
        status: what the run does.
        note: what the learner's last move means.
        pending: what is being predicted or run and is not yet on show, ``""`` for nothing.
        recorded: the recorded run on show, None where there is none.
        on_change: called with the name of an attribute after it has changed, in the thread that changed it.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    gpu: str = ""
    view: View | None = None
    nearly: View | None = None
    run: dict[str, Any] | None = None
    action: str = "Run"
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
        self.nearly = None
        self.show(view=view)

    def look_nearly_at(self, view: View) -> None:
        """Draw something for a moment; what can be taken away is what was on show before."""
        self.show(nearly=view)

    def picture(self) -> dict[str, Any] | None:
        """The step to draw now."""
        view = self.nearly or self.view
        return view.to_plain(workspace=self.workspace) if view is not None else None

    def keep(self) -> None:
        """Give the prediction on show a row; runs have one from the beginning."""
        if self.view is None or self.view.trace.source != "predicted":
            self.note_down("Keep is for predictions: move a slider to see one. Runs are kept by themselves.")
        else:
            needed = self.view.outline.peak_allocated if self.view.outline is not None else None
            self.show(rows=add(self.rows, self.view.trace, self.view.names, self.view.model, needed))
            self.note_down("")

    def say(self, text: str, alert: bool = False) -> None:
        """Tell what the run does."""
        self.show(status=Words(text, alert))

    def note_down(self, text: str, alert: bool = False) -> None:
        """Tell what the learner's last move means, or with ``""`` nothing."""
        self.show(note=Words(text, alert))
