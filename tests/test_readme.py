"""The examples of the front page and of the package's guide are run as they stand, and figures have their evidence."""

import csv
import re
from pathlib import Path

import pytest

from memlab.vgpu import CARDS
from tests.accuracy import ROWS, table

ROOT = Path(__file__).parents[1]
FRONT, GUIDE, EVIDENCE = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "memlab/README.md", "tests/EVIDENCE.md")
)


def run_examples(page: str) -> dict:
    names: dict = {}
    exec("\n".join(re.findall(r"(?ms)^```python\n(.*?)^```", page)), names)
    return names


def test_the_idea_runs(capsys):
    names = run_examples(FRONT)
    assert names["plain"].source == "measured"
    assert capsys.readouterr().out.startswith("peak ")


def test_the_guides_examples_run_and_checkpointing_saves_memory(capsys):
    names = run_examples(GUIDE)
    assert names["checkpointed"].peak_allocated < names["plain"].peak_allocated
    words = capsys.readouterr().out
    assert "peak " in words
    assert "CUDA out of memory. Tried to allocate " in words


def test_every_card_is_named_in_order():
    *most, last = CARDS
    assert f"The cards are {', '.join(most)} and {last}." in " ".join(GUIDE.split())


@pytest.mark.parametrize("figure", ["7,026,606,592", "7,026,115,072", "6,526 of 6,526", "47.45", "23,125", "23,126"])
def test_a_figure_of_the_front_page_has_its_source(figure):
    assert figure in FRONT
    assert figure in EVIDENCE


def test_the_front_page_counts_what_the_recordings_do():
    with ROWS.open(encoding="utf-8", newline="") as text:
        every = list(csv.DictReader(text))
    rows = [row for row in every if row["card"].endswith("(stand-in)")]
    equal, right, cases = (sum(int(row[name]) for row in rows) for name in ("equal", "verdicts right", "cases"))
    assert right == cases
    assert f"{equal:,} of " in FRONT
    assert f"all {cases:,} verdicts" in FRONT
    assert table(every) in EVIDENCE


def test_every_file_of_the_virtual_gpu_stands_in_its_table():
    folder = ROOT / "memlab" / "vgpu"
    named = set(re.findall(r"`(\w+(?:\.py|/))`", (folder / "README.md").read_text(encoding="utf-8")))
    there = {path.name if path.is_file() else f"{path.name}/" for path in folder.iterdir()}
    there = {name for name in there if name.endswith((".py", "/")) and not name.startswith("__")}
    assert there - named == set()
