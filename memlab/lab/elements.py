"""Elements of a panel: its words and buttons in the panel's style, each with a text for the mouse that rests on it."""

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from memlab.lab.controls import LABEL_WIDTH, explain
from memlab.lab.screen import Words
from memlab.lab.style import color
from memlab.lab.subshell import answer_during_cells


def show(widget: widgets.Widget, text: str, still: Mapping[str, str]) -> None:
    """Show a widget in a notebook. Where none can be shown, as in a saved one, ``still`` is, by MIME type, or ``text``.

    ipywidgets 7, which Colab has, would save the text alone.
    """
    answer_during_cells(widget)
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"text/plain": text, "application/vnd.jupyter.widget-view+json": view, **still}, raw=True)


def button(name: str, tip: str, pressed: Callable[[], None], *, style: str = "", small: bool = False) -> widgets.Button:
    """A button as wide as its neighbours."""
    layout = {"flex": "1 1 0", "width": "auto", "height": "30px" if small else "36px"}
    made = widgets.Button(description=name, tooltip=tip, button_style=style, layout=layout)
    made.on_click(lambda _: pressed())
    return made


def menu(description: str, options: list[Any], tip: str, **chosen: Any) -> widgets.Dropdown:
    """A menu with its name on the left."""
    style, layout = {"description_width": LABEL_WIDTH}, {"width": "auto"}
    made = widgets.Dropdown(options=options, description=description, style=style, layout=layout, **chosen)
    explain(made, tip)
    return made


def header(title: str, device: str) -> str:
    """The panel's title, and where Run measures."""
    style = f"display:flex;flex-wrap:wrap;justify-content:space-between;align-items:baseline;color:{color('ink')}"
    quiet = f"color:{color('quiet')};font-size:14px"
    source = f'<span class="memlab-measures" style="{quiet}">Run measures on {escape(device)}</span>'
    return f'<div style="{style}"><h3 style="margin:4px 0;color:inherit">{escape(title)}</h3>{source}</div>'


def line(words: Words) -> str:
    """A line of text that a screen reader reads out."""
    if not words.text:
        return ""
    style = "line-height:1.4;font-size:14px;overflow-wrap:anywhere"
    role, name = ("alert", "limit") if words.alert else ("status", "quiet")
    return f'<div role="{role}" style="{style};color:{color(name)}">{escape(words.text)}</div>'


def quietly(text: str) -> str:
    """A line of text that a screen reader leaves alone: it changes with every move."""
    return f'<div style="line-height:1.4;font-size:14px;min-height:1.4em;color:{color("quiet")}">{escape(text)}</div>'


def box(text: str) -> str:
    """The sentence below the pictures."""
    style = f"background:{color('box')};color:{color('ink')};border-radius:6px;padding:6px 12px;overflow-wrap:anywhere"
    return f'<div style="{style};line-height:1.4;font-size:14px">{escape(text)}</div>'
