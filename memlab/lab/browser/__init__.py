"""The JavaScript and CSS of the panel, as browsers run it.

The picture of one training step is drawn from a Trace's data and asked by pointing at it. There is nothing to build:
its files are put one behind the other, and share their names. A notebook's widget has ``widget.js`` behind them, a page
of the site ``page.js``.
"""

from functools import cache
from importlib.resources import files

PICTURE = ("words.js", "step.js", "chart.js", "picture.js")


@cache
def browser_file(name: str) -> str:
    """A file of this folder, as text."""
    return (files(__name__) / name).read_text(encoding="utf-8")


def script(*behind: str) -> str:
    """The picture's JavaScript, with other files of this folder behind it."""
    return "\n".join(map(browser_file, (*PICTURE, *behind)))
