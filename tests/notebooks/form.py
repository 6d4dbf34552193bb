"""The form of a notebook: a core that is read and tried in 20 to 30 minutes, and depth below it.

``python -m tests.notebooks.form`` prints the figures of all notebooks, or of those named; with ``--fold`` it marks in
their files what is folded when they are opened.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.notebooks.cells import NOTEBOOKS, notebook_named, rewrite

DEPTH = "## Going deeper"
# What only puts a table or a sentence together; so do lines with an f-string, or with
# the bars of a table. A plot, a Saving or a Claim is a result, and a line that is a text and nothing else is prose.
REPORTING = {"say", "table", "categories", "peaks", "Markdown", "display", "print", "format_bytes", "format_seconds"}


@dataclass(frozen=True)
class Form:
    """Of one notebook: the place of its lab; of its core, what a reader sees.

    Attributes:
        core_words: outside of what is folded.
        core_lines: of code, without those of cells whose source is hidden.
        has_bill: whether the memory bill stands in it.
        drawings: calls of ``memlab.drawings`` beside the bill.
        tools: rows of the table *In your code*, each a library and what to write there.
        claims_without_source: in all of the notebook.
    """

    cells_before_lab: int
    core_cells: int
    core_words: int
    core_lines: int
    longest_cell: int
    longest_line: int
    reporting: float
    has_bill: bool
    drawings: int
    tools: int
    claims_without_source: int


# The most of each, and the least of those in AT_LEAST. A core has at least LEAST_CELLS cells.
LIMITS = Form(
    cells_before_lab=5,
    core_cells=24,
    core_words=1000,
    core_lines=110,
    longest_cell=15,
    longest_line=88,
    reporting=0.15,
    has_bill=True,
    drawings=1,
    tools=5,
    claims_without_source=0,
)
AT_LEAST = {"has_bill", "drawings", "tools"}
LEAST_CELLS = 20


def form(notebook: dict[str, Any]) -> Form:
    """The form of a notebook."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    core = cells[: next((i for i, cell in enumerate(cells) if is_depth(cell)), len(cells))]
    lab = next((i for i, (kind, text) in enumerate(core) if kind == "code" and re.search(r"\bLab\(", text)), len(core))
    code = [text for kind, text in core if kind == "code"]
    hidden = [cell.get("metadata", {}).get("jupyter", {}).get("source_hidden", False) for cell in notebook["cells"]]
    shown = [text for (kind, text), is_hidden in zip(core, hidden, strict=False) if kind == "code" and not is_hidden]
    prose = [text for kind, text in core if kind == "markdown"]
    everything = [line for kind, text in cells if kind == "code" for line in text.splitlines()]
    return Form(
        cells_before_lab=lab,
        core_cells=len(core),
        core_words=sum(map(words, prose)),
        core_lines=sum(bool(line.strip()) for text in shown for line in text.splitlines()),
        longest_cell=max((len(text.splitlines()) for text in shown), default=0),
        longest_line=max(map(len, everything), default=0),
        reporting=share_of_reporting(code),
        has_bill=any("drawings.bill(" in text for text in code),
        drawings=sum(len(re.findall(r"\bdrawings\.(?!bill\b)\w+\(", text)) for text in code),
        tools=sum(len(in_your_code(text)) for text in prose),
        claims_without_source=sum(_claims_without_source(text) for kind, text in cells if kind == "code"),
    )


def words(markdown: str) -> int:
    """Return the number of words that a reader sees, without folded text and words without letter or digit."""
    return sum(any(map(str.isalnum, word)) for word in re.sub(r"(?s)<details>.*?</details>", "", markdown).split())


def in_your_code(markdown: str) -> dict[str, str]:
    """The table of that section: a library, and what is written there."""
    _, heading, section = markdown.partition("## In your code")
    section = section.partition("\n## ")[0]
    rows = [row.strip().strip("|").split(" | ") for row in section.splitlines() if row.startswith("| ")]
    return {name.strip(): " | ".join(rest).strip() for name, *rest in rows[1:]} if heading else {}


def _claims_without_source(code: str) -> int:
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and _name(node.func) == "Claim"]
    return sum(all(keyword.arg != "source" for keyword in call.keywords) for call in calls)


def is_depth(cell: tuple[str, str]) -> bool:
    """Return True if the core ends before this cell."""
    kind, text = cell
    return kind == "markdown" and text.startswith(DEPTH)


def share_of_reporting(code: Sequence[str]) -> float:
    """The part of the code's lines that only reports. Empty lines, comments, imports and prose do not count."""
    all_lines, reporting = 0, 0
    for source in code:
        statements = ast.parse(source).body
        prose = _prose(source)
        for statement in statements:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            written = _written(source, statement) - prose
            all_lines += len(written)
            reporting += len(written & set(_reporting_lines(statement)))
    return reporting / all_lines if all_lines else 0.0


def _written(source: str, statement: ast.stmt) -> set[int]:
    lines = source.splitlines()
    numbers = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    return {number for number in numbers if lines[number - 1].strip() and not lines[number - 1].strip().startswith("#")}


def _prose(source: str) -> set[int]:
    """Lines that are a text and nothing else, be it a template."""
    return {
        number
        for number, line in enumerate(source.splitlines(), start=1)
        if re.fullmatch(r"""\s*[frb]?(["']).*\1,?\s*""", line)
    }


def _reporting_lines(statement: ast.stmt) -> Iterator[int]:
    """The lines of the innermost statements that call something in REPORTING, and of texts that are put together."""
    for node in ast.walk(statement):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and "| " in str(node.value)):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
    yield from _calling_lines(statement)


def _calling_lines(statement: ast.stmt) -> Iterator[int]:
    inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
    if inner:
        for node in inner:
            yield from _calling_lines(node)
    elif any(isinstance(node, ast.Call) and _name(node.func) in REPORTING for node in ast.walk(statement)):
        yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def fold(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with its depth folded when it is opened, in JupyterLab, Notebook 7 and Colab."""
    notebook["cells"] = [part for cell in notebook["cells"] for part in _begun_by_headings(cell)]
    sections = []
    for cell in notebook["cells"]:
        if is_depth((cell["cell_type"], "".join(cell["source"]))):
            cell["metadata"] = {"jp-MarkdownHeadingCollapsed": True, "id": cell["id"]}
            sections.append(cell["id"])
    if sections:
        notebook["metadata"]["colab"] = {"collapsed_sections": sections}
    return notebook


def _begun_by_headings(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """The cell, cut before each heading of the depth: what is folded ends before the next cell that has a heading."""
    first, *rest = re.split(rf"\n+(?={DEPTH})", "".join(cell["source"]))
    if cell["cell_type"] != "markdown" or not rest:
        return [cell]
    parts = [cell | {"source": first.splitlines(keepends=True)}]
    for number, text in enumerate(rest, start=1):
        parts.append(cell | {"id": f"{cell['id']}-{number}", "source": text.splitlines(keepends=True)})
    return parts


def _print_figures(paths: Sequence[Path]) -> None:
    heads = ("notebook", "lab is cell", "cells", "words", "lines", "longest cell", "longest line", "reporting", "bill")
    print(f"| {' | '.join((*heads, 'drawings', 'tools', 'claims without source'))} |")
    print(f"|---|{'--:|' * (len(heads) + 2)}")
    print(_row("the most (of drawings and tools the least)", LIMITS))
    for path in paths:
        print(_row(path.stem, form(json.loads(path.read_text(encoding="utf-8")))))


def _row(name: str, it: Form) -> str:
    core = (it.cells_before_lab + 1, it.core_cells, it.core_words, it.core_lines, it.longest_cell, it.longest_line)
    rest = ("yes" if it.has_bill else "no", it.drawings, it.tools, it.claims_without_source)
    return f"| {name} | {' | '.join(map(str, (*core, f'{it.reporting:.0%}', *rest)))} |"


def _fold(paths: Sequence[Path]) -> None:
    for path in paths:
        rewrite(path, fold)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.notebooks.form", description="The form of notebooks.")
    parser.add_argument(
        "notebooks", nargs="*", type=notebook_named, default=NOTEBOOKS, help="their numbers or files (default: all)"
    )
    parser.add_argument("--fold", action="store_true", help="mark in their files what is folded when they are opened")
    options = parser.parse_args()
    (_fold if options.fold else _print_figures)(sorted(options.notebooks))


if __name__ == "__main__":
    main()
