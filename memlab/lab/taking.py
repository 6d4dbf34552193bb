"""What a learner takes away from a panel: rows to compare, the call as code, a picture and tables as files."""

import ipywidgets as widgets

from memlab.lab.controls import explain
from memlab.lab.export import code, links
from memlab.lab.look import button, menu
from memlab.lab.rows import ORDERS, table, to_csv
from memlab.lab.session import Session

NOTHING = "There is nothing to take yet: move a slider or press Run."


class Taking:
    """A row of small buttons, and below it what they bring up; ``widgets`` are to be put on the panel."""

    def __init__(self, session: Session):
        self._session = session
        keep = button("Keep", "Give the prediction on show a row in the table of runs", session.screen.keep, small=True)
        save = button("Save", "Links that save what is on show: a picture and tables", self._save, small=True)
        self._wants_code = widgets.ToggleButton(
            description="Code", layout={"flex": "1 1 0", "width": "auto", "height": "30px"}
        )
        explain(self._wants_code, "The call that gives what is on show, to copy")
        self._wants_code.observe(lambda change: self._write_code(), "value")
        self._workspace = widgets.Checkbox(False, description="hide workspace", indent=False)
        explain(self._workspace, "Leave out what libraries such as cuBLAS take; the peak counts it all the same")
        self._workspace.observe(lambda change: self._hide(change["new"]), "value")
        self._code = widgets.Textarea(description="code", layout={"width": "auto", "display": "none", "height": "90px"})
        explain(self._code, "Mark it all with Ctrl+A, copy it with Ctrl+C")
        self._links = widgets.HTML()
        self._table = widgets.HTML()
        self._order = menu("order by", list(ORDERS), "What the table's rows are sorted by")
        self._order.layout.display = "none"
        self._order.observe(lambda change: self._write_table(), "value")
        row = widgets.HBox([keep, self._wants_code, save])
        self.widgets = [self._workspace, row, self._links, self._code, self._table, self._order]

    def follow(self) -> None:
        """Bring what is brought up up to date with what is on show."""
        self._links.value = ""
        self._write_code()
        self._write_table()

    def _hide(self, hidden: bool) -> None:
        screen = self._session.screen
        screen.workspace = not hidden
        screen.look_at(screen.view)

    def _write_code(self) -> None:
        session, wanted = self._session, self._wants_code.value
        self._code.layout.display = None if wanted else "none"
        if wanted:
            view = session.screen.view
            self._code.value = code(view, session.train, session.steps) if view else NOTHING

    def _write_table(self) -> None:
        screen = self._session.screen
        budget = screen.view.budget if screen.view else None
        self._table.value = table(screen.rows, self._order.value, budget)
        self._order.layout.display = None if self._table.value else "none"

    def _save(self) -> None:
        screen = self._session.screen
        runs = to_csv(screen.rows) if screen.rows else ""
        self._links.value = links(screen.view, runs) if screen.view else NOTHING
