"""``python -m tests.site.panels [NOTEBOOK ...]``: predicts the panels of all pages in one go, and says how long it is.

Interrupted at any moment, it goes on where it stopped.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.notebooks.cells import NOTEBOOKS, ROOT
from tests.site.grids import time_text

PANELS = ROOT / "build" / "site-panels"
AT_ONCE = min(os.cpu_count() or 1, 4)  # some 700 MB each


def panels(notebooks: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """Return the results of :func:`tests.site.grids.complete`, by notebook; unchanged ones from the last build.

    Raises:
        CalledProcessError: a cell of a notebook fails.
    """
    files = {path: _file(path) for path in notebooks}
    missing = {path: file for path, file in files.items() if not file.exists()}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        if missing:
            print(plan(pool.map(_begun, missing)), flush=True)
        list(pool.map(_made, missing, missing.values()))
    return {path: json.loads(file.read_text(encoding="utf-8")) for path, file in files.items()}


def plan(begun: Iterable[dict[str, float]]) -> str:
    """Return a sentence on the points to predict, and the time that it takes."""
    work = list(begun)
    points, left = (sum(int(one[name]) for one in work) for name in ("points", "left"))
    if not left:
        return f"{len(work)} notebooks, {points} points, all of them predicted."
    rest = time_text(sum(one["left"] * one["seconds"] for one in work) / AT_ONCE)
    return (
        f"{len(work)} notebooks, {points} points, of which {left} are to be predicted: about {rest}, "
        f"{AT_ONCE} notebooks at a time. Interrupt it when you like: the next time it goes on from there."
    )


def in_a_process(module: str, *arguments: Path | str) -> None:
    """Run a module, which runs a notebook's cells, at the size that the site has.

    Raises:
        CalledProcessError: it failed.
    """
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "notebooks")))
    ours = {"MEMLAB_SIZE": "cpu", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    ours["MEMLAB_LOGBOOK"] = str(PANELS / "logbook.jsonl")  # not that of whoever builds
    environment = os.environ | ours
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, env=environment, cwd=ROOT)


def _file(notebook: Path) -> Path:
    """Return the file that keeps the panels of a notebook; its name changes with all that they are made of."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = [*sorted((ROOT / "memlab").rglob("*.py")), *sorted(Path(__file__).parent.glob("*.py"))]
    made_of = ["".join(cell["source"]) for cell in cells] + [path.read_text(encoding="utf-8") for path in sources]
    return PANELS / f"{notebook.stem}-{hashlib.sha256(chr(0).join(made_of).encode()).hexdigest()[:16]}.json"


def _begun(notebook: Path) -> dict[str, float]:
    file = _file(notebook).with_suffix(".begun")
    file.parent.mkdir(parents=True, exist_ok=True)
    in_a_process("tests.site.grids", notebook, file, "--begin")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _made(notebook: Path, file: Path) -> None:
    being_made = file.with_suffix(".tmp")
    in_a_process("tests.site.grids", notebook, being_made)
    being_made.replace(file)


if __name__ == "__main__":
    panels([Path(name).resolve() for name in sys.argv[1:]] or NOTEBOOKS)
