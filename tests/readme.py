"""The README's tables, from what the saved notebooks show: ``python -m tests.readme`` writes them."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.notebooks.cells import NOTEBOOKS, ROOT

# As Claim shows itself: the claim in quotation marks, the verdict in bold, the evidence.
CLAIM = re.compile(r"“(?P<claim>.+?)”\n\n\*\*(?P<verdict>True when|True\.|False\.)\*\* (?P<evidence>.+)", re.DOTALL)
# As Saving shows itself: its technique above, a row for what was measured and one for what was predicted.
SAVING = re.compile(
    r"\| (?P<technique>.+) \| without \| with \| \|\n\|---.*\n"
    r"\| measured, (?P<here>.+?) \|.*\| (?P<measured>[^|]+) \|\n"
    r"\| predicted, (?P<card>.+?) \| (?P<without>[^|]+) \| (?P<using>[^|]+) \| (?P<predicted>[^|]+) \|"
)

Rows = Iterator[tuple[str, ...]]


def shown(notebook: Path, pattern: re.Pattern) -> Iterator[re.Match]:
    """The Markdown outputs of a saved notebook that match as a whole, in their order."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            text = "".join(output.get("data", {}).get("text/markdown", ()))
            if match := pattern.fullmatch(text):
                yield match


def questions(notebook: Path) -> Rows:
    """The question that stands below the title."""
    title = "".join(json.loads(notebook.read_text(encoding="utf-8"))["cells"][0]["source"])
    question = re.search(r"(?m)^\*\*(.+)\*\*$", title)
    yield f"`{notebook.stem}`", question[1] if question else ""


def savings(notebook: Path) -> Rows:
    """What a technique saves, measured and predicted."""
    for found in shown(notebook, SAVING):
        card = f"{found['predicted']}: {found['without']} to {found['using']}, {found['card']}"
        yield found["technique"], found["measured"], card, f"`{notebook.stem[:2]}`"


def claims(notebook: Path) -> Rows:
    """The verdict on every claim."""
    for found in shown(notebook, CLAIM):
        verdict = found["verdict"].rstrip(".").lower()
        yield found["claim"], f"**{verdict}**", " ".join(found["evidence"].split()), f"`{notebook.stem[:2]}`"


TABLES: dict[Callable[[Path], Rows], tuple[str, ...]] = {
    questions: ("notebook", "the question"),
    savings: ("technique", "measured on a CPU", "predicted for a card", "notebook"),
    claims: ("claim", "verdict", "measured", "notebook"),
}


def table(rows: Callable[[Path], Rows], notebooks: Sequence[Path]) -> str:
    """One table of all notebooks, in Markdown."""
    head = TABLES[rows]
    found = [row for notebook in notebooks for row in rows(notebook)]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in found]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines])


def written(readme: str, name: str, text: str) -> str:
    """The README with a table between its marks, and empty lines around it."""
    return between(readme, name, f"\n{text}\n")


def between(page: str, name: str, text: str) -> str:
    """A page with lines of text between the marks of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def with_tables(readme: str, notebooks: Sequence[Path]) -> str:
    """The README with all its tables."""
    for rows in TABLES:
        readme = written(readme, rows.__name__, table(rows, notebooks))
    return readme


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(with_tables(path.read_text(encoding="utf-8"), NOTEBOOKS), encoding="utf-8")
