"""The notebooks' first code cell, which installs memlab where it is missing, and their badges.

``python -m tests.publish [URL]`` writes both into all notebooks. ``URL`` is where the project can be had, as
``https://github.com/OWNER/NAME``; it is kept in pyproject.toml. Without one there are no badges, and the cell takes a
wheel that lies beside the notebook.
"""

import re
import sys
import tomllib
from functools import partial
from typing import Any

from tests.notebooks.cells import NOTEBOOKS, ROOT, rewrite

CELL_ID = "install"
HIDDEN = {"cellView": "form", "jupyter": {"source_hidden": True}}  # in Colab and JupyterLab, until it is opened
CELL = """\
# @title Install memlab where it is missing, as on Colab (and touch nothing else)
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("memlab") is None:
    sources = [*map(str, Path().glob("memlab-*.whl")){source}]
    assert sources, "memlab is not installed: put its wheel beside this notebook."
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, sources[0]], check=True)"""
# A notebook on its own does not have beside it what it imports.
LOOPS = """

from memlab.shipped import bring_loops

bring_loops(Path())"""
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})"
OLD_BADGE = re.compile(r"\n\n\[!\[Open in Colab\].*")
SETTING = re.compile(r'(?m)^url = ".*"$')


def address(project: str) -> str:
    """Return the project's address, from the text of pyproject.toml; ``""`` where it is not known yet."""
    return tomllib.loads(project)["tool"]["memlab"]["url"]


def published(notebook: dict[str, Any], path: str, url: str) -> dict[str, Any]:
    """The notebook with its install cell before all other code, and its badge below the question."""
    cells = [cell for cell in notebook["cells"] if cell.get("id") != CELL_ID]
    first = next(number for number, cell in enumerate(cells) if cell["cell_type"] == "code")
    needs_loops = any("from ranks import" in "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    cells.insert(first, install_cell(url, needs_loops, notebook["cells"]))
    cells[0]["source"] = with_badge("".join(cells[0]["source"]), path, url)
    return notebook | {"cells": cells}


def install_cell(url: str, needs_loops: bool, before: list[dict[str, Any]]) -> dict[str, Any]:
    """The cell; if it was there with the same text, as it was saved."""
    source = CELL.format(source=f', "git+{url}"' if url else "") + LOOPS * needs_loops
    for cell in before:
        if cell.get("id") == CELL_ID and "".join(cell["source"]) == source:
            return cell
    cell = {"cell_type": "code", "execution_count": 1, "id": CELL_ID, "metadata": HIDDEN, "outputs": []}
    return cell | {"source": source.splitlines(keepends=True)}


def with_badge(text: str, path: str, url: str) -> list[str]:
    """The first cell's lines: below the question a badge that opens the notebook in Colab, if there is an address."""
    text = OLD_BADGE.sub("", text)
    if url:
        place = url.removeprefix("https://github.com/")
        badge = BADGE.format(colab=f"https://colab.research.google.com/github/{place}/blob/main/{path}")
        text = re.sub(r"(?m)^(\*\*.+\*\*)$", rf"\1\n\n{badge}", text, count=1)
    return text.splitlines(keepends=True)


def publish_all(url: str) -> None:
    """Bring every notebook's file up to date."""
    for path in NOTEBOOKS:
        rewrite(path, partial(published, path=path.relative_to(ROOT).as_posix(), url=url))


if __name__ == "__main__":
    file = ROOT / "pyproject.toml"
    project = file.read_text(encoding="utf-8")
    for wanted in sys.argv[1:2]:
        if wanted and not wanted.startswith("https://github.com/"):
            sys.exit(f"{wanted!r} is no address that Colab opens: give https://github.com/OWNER/NAME.")
        project = SETTING.sub(f'url = "{wanted.rstrip("/")}"', project, count=1)
        file.write_text(project, encoding="utf-8")
    publish_all(address(project))
