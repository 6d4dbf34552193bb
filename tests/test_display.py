"""A notebook shows a trace as a picture with its sentence, and loads nothing for that before."""

import subprocess
import sys
from dataclasses import replace

from IPython.core.interactiveshell import InteractiveShell

from memlab import display
from memlab.trace import Category, Event, Phase, Trace

EVENTS = (Event(600, Category.ACTIVATION, Phase.BACKWARD, "a & b", "aten.mm"),)
TRACE = Trace("measured", "CPU", "2.13.0", {}, (), None, 0, {}, EVENTS, 0)


def test_the_html_carries_the_picture_the_sentence_and_the_notes():
    html = display.html(replace(TRACE, notes=("Line 3 asked for x < 1: guessed.",)))
    assert "data:image/png;base64," in html
    assert html.count("peak 600 B in backward at a &amp; b: 100% activations") == 2  # the alt text, and the caption
    assert html.endswith("<p>Line 3 asked for x &lt; 1: guessed.</p>")


IN_A_NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import memlab
print(sorted({"torch", "matplotlib", "memlab.trace"} & sys.modules.keys()))
from memlab.trace import Trace
data, _ = shell.display_formatter.format(Trace("measured", "CPU", "2.13.0", {}, (), None, 0, {}, (), 0))
print(sorted(data), "<img" in data["text/html"], data["text/plain"])
"""


def test_ipython_shows_a_trace_by_its_name():
    done = subprocess.run([sys.executable, "-c", IN_A_NOTEBOOK], capture_output=True, text=True, check=True)
    said = "<Trace: peak 0 B outside of forward, backward and optimizer: nothing allocated, measured on CPU>"
    assert done.stdout.splitlines()[-2:] == ["[]", f"['text/html', 'text/plain'] True {said}"]


def test_without_ipython_nothing_happens(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython")
    display.register()
    assert "IPython" not in sys.modules


def test_an_ipython_that_does_not_run_is_left_alone():
    assert not InteractiveShell.initialized()
    display.register()
    assert not InteractiveShell.initialized()
