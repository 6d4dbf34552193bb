"""The picture as a widget: what the browser draws (``browser/``), and a still one where it cannot."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import anywidget
from traitlets import Bool, Dict, List, Unicode

from memlab.lab.browser import script

# As one text: ipywidgets looks at each value of lists and dictionaries, which took as long as the rest of a redraw.
_AS_TEXT: dict[str, Any] = {"sync": True, "to_json": lambda value, widget: json.dumps(value, separators=(",", ":"))}


class Picture(anywidget.AnyWidget):
    """Draws what it is given; pointing, pinning and replaying need no kernel.

    Attributes:
        shown: a step with its words, as :meth:`memlab.lab.screen.View.to_plain` gives it; None for nothing.
        run: how far a run has come, as :func:`memlab.lab.progress.progress` gives it; None for none.
        rows: the table of runs.
        code: the lines of ``train`` and the number of the first.
        questions: the guesses and claims that Present mode can show, each with its answer.
        sentence: the same in words.
        stale: whether what is shown is about to be replaced.
        is_alive: set by the browser once its module has been loaded.
    """

    shown: Any = Dict(default_value=None, allow_none=True).tag(**_AS_TEXT)
    run: Any = Dict(default_value=None, allow_none=True).tag(**_AS_TEXT)
    rows: Any = List().tag(**_AS_TEXT)
    code: Any = Dict(default_value=None, allow_none=True).tag(**_AS_TEXT)
    questions: Any = List().tag(**_AS_TEXT)
    sentence = Unicode().tag(sync=True)
    stale = Bool(False).tag(sync=True)
    is_alive = Bool(False).tag(sync=True)

    def __init__(self, wished: Callable[[Mapping[str, Any]], None]):
        """``wished`` takes what a reader asks of the kernel: ``{"bring_back": 3}``."""
        self._esm = script("widget.js")
        super().__init__()
        self.on_msg(lambda _, wish, buffers: wished(wish))
