"""The small menu of a panel: what is rarely needed, and what a learner takes away."""

from collections.abc import Callable, Sequence

import ipywidgets as widgets

from memlab.lab.controls import explain
from memlab.lab.elements import button
from memlab.lab.export import code, links
from memlab.lab.rows import to_csv
from memlab.lab.session import Session

NOTHING = "There is nothing to take yet: move a slider or press Run."


class SmallMenu:
    """A box that a button opens: ``first`` and, below, what saves and copies what is on show."""

    def __init__(self, session: Session, first: Sequence[widgets.Widget], reset: Callable[[], None]):
        self._session = session
        save = button("Save", "Links that save what is on show: a picture and tables", self._save, small=True)
        again = button("Reset", "Move all controls back to where they began", reset, small=True)
        self._wants_code = widgets.ToggleButton(
            description="Code", layout={"flex": "1 1 0", "width": "auto", "height": "30px"}
        )
        explain(self._wants_code, "The call that gives what is on show, to copy")
        self._wants_code.observe(lambda change: self._write_code(), "value")
        self._workspace = widgets.Checkbox(False, description="hide workspace", indent=False)
        explain(self._workspace, "Leave out what libraries such as cuBLAS take; the peak counts it all the same")
        self._workspace.observe(lambda change: session.screen.show(workspace=not change["new"]), "value")
        self._code = widgets.Textarea(description="code", layout={"width": "auto", "display": "none", "height": "90px"})
        explain(self._code, "Mark it all with Ctrl+A, copy it with Ctrl+C")
        self._links = widgets.HTML()
        row = widgets.HBox([self._wants_code, save, again])
        self.box = widgets.VBox([*first, self._workspace, row, self._links, self._code], layout={"display": "none"})
        self.opener = widgets.ToggleButton(
            description="More", layout={"flex": "1 1 0", "width": "auto", "height": "30px"}
        )
        explain(self.opener, "Budget, workspace, code, save, reset")
        self.opener.observe(self._opened, "value")

    def follow(self) -> None:
        """Bring the box up to date with what is on show."""
        self._links.value = ""
        self._write_code()

    def _opened(self, change: dict[str, bool]) -> None:
        self.box.layout.display = None if change["new"] else "none"

    def _write_code(self) -> None:
        session, wanted = self._session, self._wants_code.value
        self._code.layout.display = None if wanted else "none"
        if wanted:
            view = session.screen.view
            self._code.value = code(view, session.train, session.steps) if view else NOTHING

    def _save(self) -> None:
        screen = self._session.screen
        runs = to_csv(screen.rows) if screen.rows else ""
        self._links.value = links(screen.view, runs) if screen.view else NOTHING
