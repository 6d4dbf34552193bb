"""Widgets that answer while a cell runs.

JupyterLab sends what is done to a widget to a thread of its own in the kernel, a subshell, if the kernel has such:
https://jupyter.org/enhancement-proposals/91-kernel-subshells. ipykernel 7.4 passes it to where the widget spoke last
instead, in case a cell there waits for the answer. For what a cell has just made that is the thread that runs cells, so
after "Run All Cells" a slider would be dead until the last of them has ended. No cell waits for a panel.
"""

from typing import Any

import ipywidgets as widgets

_ROUTE = "_reply_subshell_for"  # of ipykernel.comm.comm.BaseComm, since 7.4


def answer_during_cells(widget: widgets.Widget) -> None:
    """Let the front end choose which thread of the kernel hears of the widget and of those within it."""
    if hasattr(widget.comm, _ROUTE):
        setattr(widget.comm, _ROUTE, _as_sent)
    for child in getattr(widget, "children", ()):
        answer_during_cells(child)


def _as_sent(data: Any, subshell: str | None) -> str | None:
    """The subshell that the message names."""
    return subshell
