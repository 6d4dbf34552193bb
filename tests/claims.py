"""The table of claims in the README, from the verdicts that the saved notebooks show. ``python -m tests.claims``."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- claims -->", "<!-- end of claims -->"
# As Claim shows itself: the claim in quotation marks, the verdict in bold, the evidence.
SHOWN = re.compile(r"“(?P<claim>.+?)”\n\n\*\*(?P<verdict>True when|True\.|False\.)\*\* (?P<evidence>.+)", re.DOTALL)


@dataclass(frozen=True)
class Verdict:
    """One claim on trial."""

    claim: str
    notebook: str
    verdict: str
    evidence: str


def verdicts(notebook: Path) -> Iterator[Verdict]:
    """What a notebook's saved outputs say, in their order."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            text = "".join(output.get("data", {}).get("text/markdown", ()))
            if match := SHOWN.fullmatch(text):
                verdict = match["verdict"].rstrip(".").lower()
                yield Verdict(match["claim"], notebook.stem, verdict, " ".join(match["evidence"].split()))


def table(notebooks: list[Path]) -> str:
    """All verdicts, in Markdown."""
    lines = ["| claim | verdict | measured | notebook |", "|---|---|---|---|"]
    for notebook in notebooks:
        for found in verdicts(notebook):
            cells = (found.claim, f"**{found.verdict}**", found.evidence, f"`{found.notebook[:2]}`")
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def written(readme: str, text: str) -> str:
    """The README with the table between its marks."""
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Write the table into the README."""
    readme = ROOT / "README.md"
    text = table(sorted((ROOT / "notebooks").glob("*.ipynb")))
    readme.write_text(written(readme.read_text(encoding="utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    main()
