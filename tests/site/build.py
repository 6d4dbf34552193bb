"""Puts the site's sources together and has Sphinx make pages of them."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import Any

import memlab
from memlab.lab.page.html import script, style
from memlab.lab.style import variables
from memlab.palette import DARK
from tests.notebooks.cells import NOTEBOOKS, ROOT, code_cells
from tests.publish import CELL_ID

BUILD = ROOT / "build"
TEXTS = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"),
    *("notebooks/README.md", "notebooks/TEACHING.md", "notebooks/panel.png"),
    *("memlab/README.md", "memlab/vgpu/README.md", "tests/standin/README.md"),
)
MOST_AT_ONCE = 4  # notebooks whose panels are predicted, some 700 MB each
NOTEBOOK_LINK = re.compile(r"\]\((\w+)\.ipynb\)")


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
    (source / "index.md").write_text(front(), encoding="utf-8")
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_AT_ONCE)) as pool:
        panels = dict(zip(with_panels, pool.map(predicted, with_panels), strict=True))
    for path in NOTEBOOKS:
        notebook = shown(json.loads(path.read_text(encoding="utf-8")), panels.get(path, {}))
        (source / "notebooks" / path.name).write_text(json.dumps(notebook), encoding="utf-8")
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
    return "\n".join([style(), chosen, given, ""])


def front() -> str:
    """The front page, with the list of all pages that Sphinx wants."""
    names = [*(f"notebooks/{path.stem}" for path in NOTEBOOKS)]
    texts = [name.removesuffix(".md") for name in TEXTS if name.endswith(".md") and name != "README.md"]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *texts[3:], "api", *names, *texts[:3], "```"])
    text = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    return f"{text}\n{tree}\n"


def api() -> str:
    """A page with every public name's docstring."""
    lines = ["# The names of memlab", "", "```{eval-rst}"]
    for name in sorted(memlab.__all__, key=str.lower):
        kind = "autoclass" if isinstance(getattr(memlab, name), type) else "autofunction"
        lines += [f".. {kind}:: memlab.{name}", "   :members:" if kind == "autoclass" else "", ""]
    return "\n".join([*lines, "```", ""])


def predicted(path: Path) -> dict[str, str]:
    """The panels of a notebook, from the last build if neither its code nor memlab has changed."""
    sources = [Path(__file__).with_name("grids.py"), *sorted((ROOT / "memlab").rglob("*.py"))]
    code = [*code_cells(path), *(source.read_text(encoding="utf-8") for source in sources)]
    key = hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]
    kept = BUILD / "site-panels" / f"{path.stem}-{key}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        being_made = kept.with_suffix(".tmp")
        in_a_process("tests.site.grids", path, being_made)
        being_made.replace(kept)
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def in_a_process(module: str, *arguments: Path) -> None:
    """Run a module, which runs a notebook's cells, at the size that the site has.

    Raises:
        CalledProcessError: it failed.
    """
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "notebooks")))
    environment = os.environ | {"MEMLAB_SIZE": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, env=environment, cwd=ROOT)


def shown(notebook: dict[str, Any], panels: dict[str, str]) -> dict[str, Any]:
    """A notebook for Sphinx: its panels live, each picture with its sentence, and nothing to install."""
    notebook["cells"] = [cell for cell in notebook["cells"] if cell.get("id") != CELL_ID]
    for cell in notebook["cells"]:
        if cell.get("id") in panels:
            cell["outputs"] = [_html(panels[cell["id"]])]
        elif cell["cell_type"] == "code":
            cell["outputs"] = [_with_sentence(output) for output in cell["outputs"]]
    return notebook


def _with_sentence(output: dict[str, Any]) -> dict[str, Any]:
    data = output.get("data", {})
    if "text/markdown" in data:
        data["text/markdown"] = NOTEBOOK_LINK.sub(r"](\1.html)", "".join(data["text/markdown"]))
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
