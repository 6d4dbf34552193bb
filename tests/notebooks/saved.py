"""``python -m tests.notebooks.saved``: the pictures of saved notebooks as PNGs, which every reader of notebooks shows.

A front end is given an ``<img>`` with a text for screen readers, because JupyterLab gives a PNG none. But sites that
show notebooks may take ``<img>`` out of outputs, GitHub among them. nbconvert has the text from the metadata of the
output. What a panel said beside its picture becomes an output of its own, and the panel itself goes: without a kernel
there is none. A picture in a fold stays an ``<img>``, or nothing would fold it.
"""

import re
from html import unescape
from typing import Any

from tests.notebooks.cells import NOTEBOOKS, SOLUTIONS, rewrite

# A picture, or the text up to the next.
PART = re.compile(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]*)">|(?:(?!<img ).)+', re.DOTALL)
PANEL = "application/vnd.jupyter.widget-view+json"


def parts(output: dict[str, Any]) -> list[dict[str, Any]]:
    """The output as saved: if its HTML has pictures, an output for each of them and for the text between."""
    data = output.get("data", {})
    data.pop(PANEL, None)
    markup = "".join(data.get("text/html", ""))
    if "<img " not in markup or markup.startswith("<details>"):
        return [output]
    return [output | _png(*found.groups()) if found[2] else _text(found[0]) for found in PART.finditer(markup)]


def _png(sentence: str, encoded: str) -> dict[str, Any]:
    alt = unescape(sentence)
    return {"data": {"image/png": encoded, "text/plain": [alt]}, "metadata": {"image/png": {"alt": alt}}}


def _text(markup: str) -> dict[str, Any]:
    return {"data": {"text/html": [markup]}, "metadata": {}, "output_type": "display_data"}


def as_saved(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with its pictures as PNGs and without panels."""
    for cell in notebook["cells"]:
        if "outputs" in cell:
            cell["outputs"] = [part for output in cell["outputs"] for part in parts(output)]
    return notebook


if __name__ == "__main__":
    for file in (*NOTEBOOKS, *SOLUTIONS):
        rewrite(file, as_saved)
