"""Exports of a panel: a picture, tables, the call that gives the same result, and HTML for a saved notebook."""

import base64
import csv
import io
import re
from collections.abc import Callable, Mapping
from html import escape

from memlab.lab.costs import facts
from memlab.lab.screen import View
from memlab.lab.style import color
from memlab.lab.words import origin
from memlab.plots import Picture, timeline
from memlab.protocol import Train, name_of, own_settings
from memlab.trace import Trace

SAVED = "This is a saved picture: run its cell for sliders."


def code(view: View, train: Train, steps: int) -> str:
    """The call that gives the run on show: ``measure(train, steps=40, batch_size=24)``.

    Settings stand in it that the panel controls, or that are not as ``train`` has them.
    """
    trace = view.trace
    defaults = {name: parameter.default for name, parameter in own_settings(train).items()}
    settings = {
        name: value
        for name, value in trace.settings.items()
        if name in view.names or name not in defaults or value != defaults[name]
    }
    options: Mapping[str, object] = {"gpu": trace.device} if trace.source == "predicted" else {"steps": steps}
    if "world_size" in view.names:
        options = {**options, "world_size": trace.world_size}
    if "global_rank" in view.names and trace.source == "predicted":
        options = {**options, "global_rank": trace.rank}
    if view.budget is not None and trace.source == "measured":
        options = {**options, "budget": view.budget}
    call = _call(trace)
    given = "".join(f", {name}={value!r}" for name, value in {**options, **settings}.items())
    module = "memlab.cluster" if call == "measure" and "world_size" in view.names else "memlab"
    return f"from {module} import {call}\n\n{call}({name_of(train)}{given})"


def _call(trace: Trace) -> str:
    return "predict" if trace.source == "predicted" else "measure"


def picture(view: View) -> Picture:
    """The picture of memory by matplotlib."""
    return timeline(view.trace, budget=view.limit, note=f"{view.heading}, {origin(view.trace, recorded=view.recorded)}")


def timeline_csv(trace: Trace) -> str:
    """The step on show as CSV: a row for its start and for every event, bytes by category."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["event", "phase", "module", "operator", "allocated", *trace.timeline])
    events = [("", "", ""), *((event.phase, event.module, event.op) for event in trace.events)]
    for moment, (event, allocated) in enumerate(zip(events, trace.allocated, strict=True)):
        writer.writerow([moment, *event, allocated, *(values[moment] for values in trace.timeline.values())])
    return text.getvalue()


def links(view: View, runs_csv: str) -> str:
    """Links that save what is on show, as HTML: they carry the files themselves, so no server is asked."""
    name = re.sub(r"[^a-z0-9]+", "-", view.heading.lower()).strip("-")
    files: list[tuple[str, str, str, Callable[[], bytes]]] = [
        ("picture (PNG)", f"{name}.png", "image/png", picture(view).png),
        ("step (CSV)", f"{name}.csv", "text/csv", timeline_csv(view.trace).encode),
    ]
    if runs_csv:
        files.append(("runs (CSV)", "runs.csv", "text/csv", runs_csv.encode))
    saved = " · ".join(
        f'<a download="{file}" href="data:{kind};base64,{base64.b64encode(read()).decode()}" '
        f'style="color:{color("link")};text-decoration:underline">{text}</a>'
        for text, file, kind, read in files
    )
    return f'<div style="font-size:14px;color:{color("ink")}">Save: {saved}</div>'


def still(view: View, sentence: str) -> str:
    """Return the HTML that a saved notebook keeps of the panel: title, picture and sentences, in its colours."""
    where = origin(view.trace, recorded=view.recorded)
    return (
        f"<p><b>{escape(view.heading)}</b>, {escape(where)}: {escape(facts(view.trace))}</p>"
        f"{picture(view).html()}<p>{escape(sentence)}</p><p>{SAVED}</p>"
    )
