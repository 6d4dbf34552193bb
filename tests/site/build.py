"""Puts the site's sources together and has Sphinx make pages of them."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import memlab
from memlab.lab.guess import MIME
from memlab.lab.page import form
from memlab.lab.page.html import script
from memlab.lab.style import style, variables
from memlab.palette import DARK
from tests.notebooks.cells import NOTEBOOKS, ROOT, SOLUTIONS
from tests.publish import CELL_ID
from tests.site.panels import panels
from tests.site.texts import on_page

BUILD = ROOT / "build"
TEXTS = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"),
    *(
        "notebooks/README.md",
        "notebooks/TEACHING.md",
        "notebooks/panel.png",
        "memlab/README.md",
        "memlab/vgpu/README.md",
        "memlab/trace.schema.json",
    ),
    *("tests/EVIDENCE.md", "tests/recordings/accuracy.csv", "tests/standin/README.md"),
)
FIRST = "00_start_here"  # whose panel the front page has, in the place of its picture
PANEL_PICTURE = re.compile(r"!\[[^]]*\]\(notebooks/panel\.png\)")


def build(with_panels: Sequence[Path]) -> Path:
    """Build the site, with live panels in these notebooks; the folder that it is in.

    Raises:
        CalledProcessError: a cell of a notebook fails, or Sphinx warns.
    """
    source, site = BUILD / "site-source", BUILD / "site"
    for folder in (source, site):
        shutil.rmtree(folder, ignore_errors=True)
    for name in TEXTS:
        _copy(ROOT / name, source / name)
    (source / "api.md").write_text(api(), encoding="utf-8")
    made = panels(with_panels)
    first = next((panel["html"] for path, its in made.items() for panel in its.values() if path.stem == FIRST), "")
    (source / "index.md").write_text(front(first), encoding="utf-8")
    for path in (*NOTEBOOKS, *SOLUTIONS):
        notebook = shown(json.loads(path.read_text(encoding="utf-8")), made.get(path, {}))
        notebook["metadata"]["orphan"] = path in SOLUTIONS  # in no list of pages: its notebook links to it
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(notebook), encoding="utf-8")
    _copy(Path(__file__).with_name("conf.py"), source / "conf.py")
    _copy(Path(__file__).with_name("site.js"), source / "static" / "site.js")
    (source / "static" / "panel.js").write_text(script(), encoding="utf-8")
    (source / "static" / "panel.css").write_text(themed(), encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", source, site]
    subprocess.run(list(map(str, command)), check=True)
    return site


def themed() -> str:
    """The panels' CSS, with dark colours where the site is dark: so chosen, or as the reader's system has it."""
    dark = f"{{ {variables(DARK)}color-scheme: dark }}"
    chosen = f'body[data-theme="dark"] .memlab {dark}'
    given = f'@media (prefers-color-scheme: dark) {{ body[data-theme="auto"] .memlab {dark} }}'
    own = Path(__file__).with_name("site.css").read_text(encoding="utf-8")
    return "\n".join([re.sub("</?style>", "", style()), own, chosen, given, ""])


def front(panel: str) -> str:
    """The front page, with a live panel, and with the list of all pages that Sphinx wants: the lessons first."""
    guides = [name.removesuffix(".md") for name in TEXTS if name.endswith(".md") and name != "README.md"]
    parts = {
        "Lessons": [f"notebooks/{path.stem}" for path in NOTEBOOKS],
        "Guides": [name for name in guides if "/" in name],
        "Reference": ["api", *(name for name in guides if "/" not in name)],
    }
    trees = (
        "\n".join(["```{toctree}", ":hidden:", f":caption: {name}", "", *pages, "```"]) for name, pages in parts.items()
    )
    text = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    if panel:
        text = PANEL_PICTURE.sub(lambda _: f"```{{raw}} html\n{panel}\n```", text, count=1)
    return "\n\n".join([text, *trees, ""])


def api() -> str:
    """A page with every public name's docstring."""
    lines = ["# The names of memlab", "", "```{eval-rst}"]
    for name in sorted(memlab.__all__, key=str.lower):
        kind = "autoclass" if isinstance(getattr(memlab, name), type) else "autofunction"
        lines += [f".. {kind}:: memlab.{name}", "   :members:" if kind == "autoclass" else "", ""]
    return "\n".join([*lines, "```", ""])


def shown(notebook: dict[str, Any], panels: dict[str, Any]) -> dict[str, Any]:
    """A notebook for Sphinx: its panels live, guesses to be made, each picture with its sentence, nothing to install.

    Args:
        panels: by the id of their cell, as :func:`tests.site.grids.complete` gives them.
    """
    cells = notebook["cells"] = [cell for cell in notebook["cells"] if cell.get("id") != CELL_ID]
    has_runs = all(panel["has_runs"] for panel in panels.values())
    for cell in cells:
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            cell["metadata"]["tags"] = ["hide-input"]  # folded, as in the notebook
        if cell["cell_type"] == "markdown":
            cell["source"] = on_page("".join(cell["source"]), has_runs=has_runs)
        elif cell.get("id") in panels:
            cell["outputs"] = [_html(panels[cell["id"]]["html"])]
        elif cell["cell_type"] == "code":
            cell["outputs"] = [_with_sentence(output) for output in cell["outputs"]]
    for cell in cells:
        for output in cell.get("outputs", []):
            if guess := output.get("data", {}).get(MIME):
                cell["outputs"] = [one for one in cell["outputs"] if one is not output]
                asked = next((other for other in cells if _asks(other, guess["question"])), cell)
                asked["outputs"] = [_html(form(guess))]
    return notebook


def _asks(cell: dict[str, Any], question: str) -> bool:
    """Return True if the cell shows the box for a guess."""
    data = (output.get("data", {}) for output in cell.get("outputs", []))
    return any("".join(one.get("text/markdown", "")).startswith(question) for one in data)


def _with_sentence(output: dict[str, Any]) -> dict[str, Any]:
    data = output.get("data", {})
    if "image/png" not in data:
        return output
    sentence = escape("".join(data.get("text/plain", "")), quote=True)
    return _html(f'<img alt="{sentence}" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">')


def _html(text: str) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": {"text/html": text}}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".md":
        text = re.sub(r"<!--.*?-->", "", source.read_text(encoding="utf-8"))  # the marks of tests.readme
        target.write_text(text.replace("(../README.md", "(../index.md"), encoding="utf-8")
    else:
        shutil.copy(source, target)
