"""How a notebook shows a trace. IPython is told by the type's name, so neither loads the other."""

import sys
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.trace import Trace


def register() -> None:
    """Tell IPython, where it runs, how to show a trace; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type_by_name("memlab.trace", "Trace", html)


def html(trace: "Trace") -> str:
    """The trace as a notebook shows it: the picture, and under it the sentences and the notes."""
    from memlab.plots import timeline  # here, because `import memlab` loads nothing heavy

    texts = (trace.sentence, trace.time_sentence, *trace.notes)
    return timeline(trace).html() + "".join(f"<p>{escape(text)}</p>" for text in texts if text)
