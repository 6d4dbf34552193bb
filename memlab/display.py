"""HTML of a trace and of a snapshot in a notebook. IPython finds it by the type's name, so neither loads the other."""

import sys
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.snapshots import SnapshotExplanation
    from memlab.trace import Trace


def register() -> None:
    """Tell IPython, where it runs, how to show a trace and a snapshot; elsewhere do nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name("memlab.trace", "Trace", html)
        formatter.for_type_by_name("memlab.snapshots.telling", "SnapshotExplanation", snapshot_html)


def html(trace: "Trace") -> str:
    """The trace as a notebook shows it: the picture, and under it the sentences and the notes."""
    from memlab.plots import timeline  # here, because `import memlab` loads nothing heavy

    texts = (trace.sentence, trace.time_sentence, *trace.notes)
    return timeline(trace).html() + "".join(f"<p>{escape(text)}</p>" for text in texts if text)


def snapshot_html(said: "SnapshotExplanation") -> str:
    """A snapshot as a notebook shows it: its history, if there is one, the segments, and the table."""
    from memlab.segment_plots import allocator_history, segment_map

    replay = said.replay
    pictures = [segment_map(said.segments, title=said.when, asked=said.asked)]
    if replay.snapshot.trace:
        note = f"{len(replay.snapshot.trace):,} recorded events of GPU {replay.snapshot.device}; marked: {said.when}"
        marked = allocator_history(replay.curve, replay.reserved, moment=said.moment, title=said.sentence, note=note)
        pictures.insert(0, marked)
    return "".join(picture.html() for picture in pictures) + f"<pre>{escape(str(said))}</pre>"
