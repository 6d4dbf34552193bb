"""Run a few cells of a notebook without the rest: those that a cell needs, found by the names they use.

``python -m tests.notebooks.cells NOTEBOOK`` runs the section that compares results, as it is and broken in
every way that ``breaks/`` lists; it prints what came of each, as JSON.
"""

import ast
import contextlib
import io
import json
import symtable
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

BREAKS = Path(__file__).parent / "breaks"


def code_cells(notebook: Path, section: str | None = None) -> list[str]:
    """The sources of the code cells, or of those below the heading ``section`` alone."""
    found, inside = [], section is None
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        headings = [line for line in source.splitlines() if line.startswith("## ")]
        if cell["cell_type"] == "markdown" and section and headings:
            inside = headings[-1] == f"## {section}"
        elif cell["cell_type"] == "code" and inside:
            found.append(source)
    return found


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


def run(cells: Sequence[str]) -> dict:
    """The names that the cells leave behind. What they print is thrown away."""
    space: dict = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            exec(compile(cell, "<cell>", "exec"), space)
    return space


def outcome(cells: Sequence[str]) -> str:
    """``"passes"``, or the error that the cells raise."""
    try:
        run(cells)
    except Exception as error:  # a broken technique may raise anything; only AssertionError is a finding
        return f"{type(error).__name__}: {error}"
    return "passes"


def broken(cells: Sequence[str], replace: str, by: str) -> list[str]:
    """The cells with one piece of code replaced.

    Raises:
        ValueError: the piece is not there exactly once.
    """
    count = sum(cell.count(replace) for cell in cells)
    if count != 1:
        raise ValueError(
            f"{replace!r} stands {count} times in the cells of 'Same result?' and what they need, not once"
        )
    return [cell.replace(replace, by) for cell in cells]


def breaks(notebook: Path) -> list[dict[str, str]]:
    """The ways to break a notebook's technique: ``why``, ``replace`` and ``with``."""
    return tomllib.loads((BREAKS / f"{notebook.stem}.toml").read_text(encoding="utf-8"))["break"]


def same_result(notebook: Path) -> dict[str, str]:
    """What came of the section "Same result?", as it is and after each break."""
    section = needed(code_cells(notebook), code_cells(notebook, "Same result?"))
    found = {"as it is": outcome(section)}
    for case in breaks(notebook):
        found[case["why"]] = outcome(broken(section, case["replace"], case["with"]))
    return found


if __name__ == "__main__":
    print(json.dumps(same_result(Path(sys.argv[1]))))
