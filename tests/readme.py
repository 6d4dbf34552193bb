"""The tables of ``notebooks/README.md`` and of ``notebooks/TEACHING.md``, and how many claims the front page counts.

All of them come from what the saved notebooks show.

``python -m tests.readme`` writes them.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from memlab.lab.guess import MIME
from memlab.units import format_bytes
from tests.notebooks.cells import NOTEBOOKS, ROOT

# As Claim shows itself: the claim in quotation marks; below what asks for a vote, which older notebooks do not have,
# the verdict in bold and the evidence.
CLAIM = re.compile(
    r"“(?P<claim>.+?)”\n\n(<details><summary>[^<]*</summary>\n\n)?"
    r"\*\*(?P<verdict>True when|True\.|Not proven\.|False\.)\*\* (?P<evidence>.+?)(\n\n</details>)?",
    re.DOTALL,
)
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


def number(notebook: Path) -> str:
    """Return the name of a notebook in a table: ``13b`` for ``13b_fused_loss``."""
    return f"`{notebook.stem.partition('_')[0]}`"


def savings(notebook: Path) -> Rows:
    """Yield the saving of each technique, measured and predicted."""
    for found in shown(notebook, SAVING):
        card = f"{found['predicted']}: {found['without']} to {found['using']}, {found['card']}"
        yield found["technique"], found["measured"], card, number(notebook)


def claims(notebook: Path) -> Rows:
    """The verdict on every claim."""
    for found in shown(notebook, CLAIM):
        verdict = found["verdict"].rstrip(".").lower()
        yield found["claim"], f"**{verdict}**", " ".join(found["evidence"].split()), number(notebook)


def answers(notebook: Path) -> Rows:
    """Yield the question of each guess and its answer."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            if guess := output.get("data", {}).get(MIME):
                answer = guess["actual"]
                yield number(notebook), guess["question"], answer if guess["choices"] else format_bytes(answer)


TABLES: dict[Callable[[Path], Rows], tuple[str, ...]] = {
    questions: ("notebook", "the question"),
    savings: ("technique", "measured on a CPU", "predicted for a card", "notebook"),
    claims: ("claim", "verdict", "measured", "notebook"),
    answers: ("notebook", "the guess", "the answer"),
}


def table(rows: Callable[[Path], Rows], notebooks: Sequence[Path]) -> str:
    """One table of all notebooks, in Markdown."""
    head = TABLES[rows]
    found = [row for notebook in notebooks for row in rows(notebook)]
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in found]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines])


def written(page: str, name: str, text: str) -> str:
    """A page with a table between its marks, and empty lines around it."""
    return between(page, name, f"\n\n{text}\n\n")


def between(page: str, name: str, text: str) -> str:
    """A page with a text between the marks of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"


def with_tables(page: str, notebooks: Sequence[Path]) -> str:
    """A page with those tables that it has marks for."""
    for rows in TABLES:
        if f"<!-- {rows.__name__} -->" in page:
            page = written(page, rows.__name__, table(rows, notebooks))
    return page


def with_counts(page: str, notebooks: Sequence[Path]) -> str:
    """The front page, with how many claims there are and how many hold."""
    verdicts = [row[1].strip("*") for notebook in notebooks for row in claims(notebook)]
    counts = {name: verdicts.count(name) for name in ("true", "true when", "false", "not proven")}
    text = "{true} hold, {true when} hold under a condition, {false} do not".format_map(counts)
    text += ", {not proven} are not proven".format_map(counts) * ("not proven" in verdicts)
    return between(page, "counted", f"of {len(verdicts)} claims {text}")


PAGES: dict[Path, Callable[[str, Sequence[Path]], str]] = {
    ROOT / "notebooks" / "README.md": with_tables,
    ROOT / "notebooks" / "TEACHING.md": with_tables,
    ROOT / "README.md": with_counts,
}

if __name__ == "__main__":
    for path, brought_up in PAGES.items():
        path.write_text(brought_up(path.read_text(encoding="utf-8"), NOTEBOOKS), encoding="utf-8")
