"""``python -m tests.notebooks.saved``: the pictures of saved notebooks as PNGs, which every reader of notebooks shows.

A front end is given an ``<img>`` with a text for screen readers, because JupyterLab gives a PNG none. But sites that
show notebooks may take ``<img>`` out of outputs. nbconvert has the text from the metadata of the output.
"""

import re
from html import unescape
from typing import Any

from tests.notebooks.cells import NOTEBOOKS, ROOT, rewrite

IMG = re.compile(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]*)">')


def as_png(output: dict[str, Any]) -> dict[str, Any]:
    """The output, a PNG if all of it is one picture."""
    markup = "".join(output.get("data", {}).get("text/html", ""))
    if picture := IMG.fullmatch(markup):
        sentence, encoded = picture.groups()
        output["data"] = {"image/png": encoded, "text/plain": [unescape(sentence)]}
        output["metadata"] = {"image/png": {"alt": unescape(sentence)}}
    return output


def with_pngs(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with its pictures as PNGs."""
    for cell in notebook["cells"]:
        if "outputs" in cell:
            cell["outputs"] = [as_png(output) for output in cell["outputs"]]
    return notebook


if __name__ == "__main__":
    for file in (*NOTEBOOKS, *sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))):
        rewrite(file, with_pngs)
