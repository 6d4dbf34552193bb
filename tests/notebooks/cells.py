"""Run a few cells of a notebook without the rest: those that a cell needs, found by the names they use."""

import ast
import contextlib
import io
import json
import os
import subprocess
import symtable
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BREAKS = Path(__file__).parent / "breaks"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def code_cells(notebook: Path, section: str | None = None) -> list[str]:
    """The sources of the code cells, or of those alone that stand below a heading which ends with ``section``."""
    found, inside = [], section is None
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        headings = [line for line in source.splitlines() if line.startswith("## ")]
        if cell["cell_type"] == "markdown" and section and headings:
            inside = headings[-1].endswith(f" {section}")
        elif cell["cell_type"] == "code" and inside:
            found.append(source)
    return found


def faults(notebook: dict[str, Any]) -> Iterator[str]:
    """What a reader would take for a fault: errors, and what is written to stderr."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if output["output_type"] == "error" or output.get("name") == "stderr":
                yield "".join(output.get("traceback", output.get("text", ())))


def rewrite(notebook: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change a notebook's file, and leave it untouched where nothing changes; as Jupyter writes files."""
    before = notebook.read_text(encoding="utf-8")
    after = json.dumps(change(json.loads(before)), indent=1, ensure_ascii=False) + "\n"
    if after != before:
        notebook.write_text(after, encoding="utf-8")


def needed(cells: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """``wanted`` and the cells before them that make the names which these use, in the notebook's order."""
    chosen, names = [], set()
    for cell in reversed(cells):
        uses, makes = _names(cell)
        if cell in wanted or makes & names:
            chosen.append(cell)
            names = (names - makes) | uses
    return chosen[::-1]


def _names(source: str) -> tuple[set[str], set[str]]:
    """The global names that a cell needs from others, and those that it makes."""
    uses, makes = set(), set()
    for statement in ast.parse(source).body:
        table = symtable.symtable(ast.unparse(statement), "<cell>", "exec")
        uses |= set(_used(table)) - makes
        makes |= {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
    return uses, makes


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    outermost = table.get_type() == "module"
    for name in table.get_symbols():
        if name.is_referenced() and (outermost or name.is_global()):
            yield name.get_name()
    for inner in table.get_children():
        yield from _used(inner)


def run(cells: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """The names that the cells leave behind, and what the last of them shows. What they print is thrown away."""
    space: dict[str, Any] = {"__name__": "__main__"}
    shown = None
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            *before, last = ast.parse(cell).body
            if not isinstance(last, ast.Expr):
                before, last = [*before, last], ast.parse("None").body[0]
            exec(compile(ast.Module(before, []), "<cell>", "exec"), space)
            shown = eval(compile(ast.Expression(last.value), "<cell>", "eval"), space)
    return space, shown


def changed(cells: Sequence[str], replace: str, by: str) -> list[str]:
    """The cells with one piece of code replaced.

    Raises:
        ValueError: the piece is not there exactly once.
    """
    count = sum(cell.count(replace) for cell in cells)
    if count != 1:
        raise ValueError(f"{replace!r} stands {count} times in the cells that run, not once")
    return [cell.replace(replace, by) for cell in cells]


def changes(notebook: Path, kind: str) -> list[dict[str, str]]:
    """The changes of a ``kind``, "break" or "cheat", that stand in ``breaks/``: each ``why``, ``replace``, ``with``."""
    return tomllib.loads((BREAKS / f"{notebook.stem}.toml").read_text(encoding="utf-8")).get(kind, [])


def printed(module: str, notebook: Path) -> str:
    """What a module of this folder prints of a notebook, in a process of its own: what cells set in torch stays there.

    Raises:
        AssertionError: the module ends in an error.
    """
    paths = os.pathsep.join((str(ROOT), str(ROOT / "notebooks")))  # a notebook imports what lies beside it
    environment = os.environ | {"MEMLAB_SIZE": "ci", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-m", f"tests.notebooks.{module}", str(notebook)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
