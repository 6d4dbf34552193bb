"""The panels that a notebook shows: they keep still while a cell runs, and one that is made again takes its place."""

from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from memlab.errors import NoVirtualGpu
from memlab.lab.session import Session


class Shown(Protocol):
    """A panel."""

    session: Session

    def close(self) -> None:
        """Take it away."""


class Place(NamedTuple):
    """The cell in which a panel is shown, if the front end names it, and the run of this cell that showed it."""

    cell: str | None
    time: str | None


_shown: dict[int, tuple[Shown, Place]] = {}


def watch(panel: Shown) -> None:
    """A cell shows the panel. What the same cell showed when it ran before is closed."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        return
    for event, happens in (("pre_run_cell", _begins), ("post_run_cell", _ended)):
        shell.events.register(event, happens)  # once, however often it is called
    here = _place(shell)
    for other, place in list(_shown.values()):
        if other is not panel and place.cell is not None and place.cell == here.cell and place.time != here.time:
            other.close()
    _shown[id(panel)] = panel, here


def forget(panel: Shown) -> None:
    """It is no longer shown."""
    _shown.pop(id(panel), None)


def _place(shell: Any) -> Place:
    parent = getattr(shell, "parent_header", None) or {}
    return Place((parent.get("metadata") or {}).get("cellId"), (parent.get("header") or {}).get("msg_id"))


def _begins(info: Any) -> None:
    _note(begins=True)
    for panel, _ in list(_shown.values()):
        panel.session.hold()


def _ended(result: Any) -> None:
    from IPython import get_ipython

    _note(begins=False)
    here = _place(get_ipython())
    for panel, place in list(_shown.values()):
        if place != here:
            panel.session.hold()  # what was predicted meanwhile may be of what the cell has replaced
        panel.session.look_ahead(at_once=place == here)  # whoever sees it appear drags its slider first


def _note(*, begins: bool) -> None:
    """Predictions beside a cell are not to see what it switches for a moment."""
    with suppress(NoVirtualGpu):  # a PyTorch that cannot carry it can still measure
        from memlab.vgpu import switches

        (switches.cell_begins if begins else switches.cell_ended)()
