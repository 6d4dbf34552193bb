"""Run a few cells of a notebook without the rest: those that a cell needs, found by the names they use."""

import ast
import contextlib
import io
import json
import re
import symtable
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
BREAKS = Path(__file__).parent / "breaks"
# What may be left out where its names are not needed; a loop may be there for what it does to others.
MAKING = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)
# What tells by being called, or by a call of something in it: a plot, the answer to a guess, the check of a challenge.
TELLING = {
    *("say", "table", "categories", "peaks", "print", "Claim", "key_figure"),
    *("plots", "drawings", "guess", "challenge"),
}
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")  # in Markdown, to another file
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))


def notebook_named(name: str) -> Path:
    """Return the notebook of this file name, or of this number, as in ``13b``.

    Raises:
        SystemExit: there is none.
    """
    for path in NOTEBOOKS:
        if name in (path.stem.partition("_")[0], path.stem, path.name) or Path(name).resolve() == path:
            return path
    sys.exit(f"{name!r} is no notebook: give one of {', '.join(path.stem for path in NOTEBOOKS)}.")


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
    """Yield what a reader would take for a fault: errors, and what is written to stderr."""
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
    """``wanted``, and of the cells before them what these need, in the notebook's order.

    A cell before is needed if it makes a name that is used. What it makes beside and what it only tells is left out.
    """
    cells = cells[: max(cells.index(cell) for cell in wanted) + 1]
    late: set[str] = set()  # a function may use what is made after it
    while True:
        chosen = _chosen(cells, wanted, late)
        within = {name for cell in chosen for name in _names(cell).within}
        if within <= late:
            return chosen
        late |= within


def _chosen(cells: Sequence[str], wanted: Sequence[str], late: Set[str]) -> list[str]:
    chosen, names = [], set(late)
    for cell in reversed(cells):
        part = cell if cell in wanted else _part(cell, names)
        if part:
            chosen.append(part)
            names = _names(part).before(names)
    return chosen[::-1]


def _part(cell: str, names: Set[str]) -> str:
    """The cell without the assignments and functions that make other names than these, and without what only tells."""
    if not _names(cell).made & names:
        return ""
    kept = []
    for statement in reversed(ast.parse(cell).body):
        its = _names(ast.unparse(statement))
        if not _only_tells(statement) and (not isinstance(statement, MAKING) or not its.made or its.made & names):
            first = min([statement.lineno, *(line.lineno for line in getattr(statement, "decorator_list", []))])
            kept.append("\n".join(cell.splitlines()[first - 1 : statement.end_lineno]))
            names = its.before(names)
    return "\n".join(kept[::-1])


def _only_tells(statement: ast.stmt) -> bool:
    """Return True if a statement shows a name, a table, a claim or a picture, or judges a guess or a challenge."""
    match statement:
        case ast.Expr(ast.Name()):
            return True
        case ast.Expr(ast.Call(ast.Name(name) | ast.Attribute(ast.Name(name)))):
            return name in TELLING
    return False


@dataclass(frozen=True)
class Names:
    """The global names that code makes, needs from other code at once, and needs when its functions are called.

    Attributes:
        made: those that it gives a value, or may.
        surely: those of them that do not hang on an ``if``: no earlier value of theirs is needed.
        used: those that have to be there before it.
        within: those that its functions use.
    """

    made: Set[str]
    surely: Set[str]
    used: Set[str]
    within: Set[str]

    def before(self, names: Set[str]) -> Set[str]:
        """Return the names needed before this code, where ``names`` are needed after it."""
        return (names - self.surely) | self.used


def _names(source: str) -> Names:
    made, surely, used, within = set(), set(), set(), set()
    for statement in ast.parse(source).body:
        table = symtable.symtable(ast.unparse(statement), "<cell>", "exec")
        used |= (set(_used(table)) - _counted(statement) | _updated(statement)) - surely
        within |= {name for inner in table.get_children() for name in _used(inner)}
        its = {name.get_name() for name in table.get_symbols() if name.is_assigned() or name.is_imported()}
        made |= its
        surely |= _in_both(statement) if isinstance(statement, ast.If) else its
    return Names(made, surely, used, within)


def _in_both(condition: ast.If) -> Set[str]:
    """The names that both branches make."""
    yes, no = (_names(ast.unparse(ast.Module(branch, []))).surely for branch in (condition.body, condition.orelse))
    return yes & no


def _counted(statement: ast.stmt) -> set[str]:
    """The names that a loop gives values before it uses them, which for symtable are used."""
    if not isinstance(statement, ast.For):
        return set()
    first, source = (
        {name.id for name in ast.walk(part) if isinstance(name, ast.Name)}
        for part in (statement.target, statement.iter)
    )
    return first - source


def _updated(statement: ast.stmt) -> set[str]:
    """The names that ``+=`` and the like change, which for symtable are only made."""
    changes = (node for node in ast.walk(statement) if isinstance(node, ast.AugAssign))
    return {change.target.id for change in changes if isinstance(change.target, ast.Name)}


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    outermost = table.get_type() == "module"
    for name in table.get_symbols():
        if name.is_referenced() and (outermost or name.is_global()):
            yield name.get_name()
    for inner in table.get_children():
        yield from _used(inner)


_OWN_MAIN = sys.modules["__main__"]  # kept: without a reference its names would go


class _Main(ModuleType):
    """The module of a notebook's cells, in which PyTorch's compiler looks up what their functions use."""

    def __init__(self, space: dict[str, Any]):
        super().__init__("__main__")
        self._space = space

    def __getattr__(self, name: str) -> Any:
        try:
            return self._space[name]
        except KeyError:
            raise AttributeError(name) from None


def run(cells: Sequence[str], space: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
    """The names that the cells leave behind, and what the last of them shows. What they print is thrown away.

    Args:
        cells: their sources.
        space: the names that cells before have left, to which theirs come; none before them where it is not given.
    """
    space = {} if space is None else space
    space["__name__"] = "__main__"
    sys.modules["__main__"] = _Main(space)
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
    """The changes of a ``kind``, "break" or "cheat", that stand in ``breaks/``: each ``why``, ``replace``, ``with``.

    Raises:
        FileNotFoundError: the notebook has none yet.
    """
    file = BREAKS / f"{notebook.stem}.toml"
    if not file.exists():
        raise FileNotFoundError(
            f"{file} is not there: write what must make {notebook.stem}'s checks fail (CONTRIBUTING)."
        )
    return tomllib.loads(file.read_text(encoding="utf-8")).get(kind, [])
