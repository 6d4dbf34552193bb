"""The form of committed notebooks: small, whole, in order, and with nothing of the machine that ran them."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from memlab.lab.panel import WITHOUT_WIDGETS
from tests.notebooks.cells import LINK

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
MOST_BYTES = 300_000
# Home folders and temporary files, on Linux, macOS and Windows.
MACHINE_PATH = re.compile(r"(?:/(?:home|Users|root|tmp|var/folders)/|[A-Z]:\\\\?Users\\)[^\s\"']*")
# A number with a unit in prose: it must come from a cell. Code, and what a teacher is told of minutes, may have one.
UNIT = r"(?:%|percent\b|[KMGT]i?B\b|bytes?\b|times\b|x\b|\u00d7|m?s\b|seconds?\b|[GT]?FLOPs?\b)"
TYPED_NUMBER = re.compile(r"(?<![\w.-])\d[\d.,]*\s*" + UNIT)
FENCED = re.compile(r"(?ms)^```.*?^```")
CODE = re.compile(FENCED.pattern + r"|`[^`]*`")
# Jupyter's own copies in .ipynb_checkpoints are not committed.
PATHS = sorted(NOTEBOOKS.glob("*.ipynb")) + sorted(NOTEBOOKS.glob("[!.]*/*.ipynb"))
SHIPPED = [pytest.param(path, id=path.relative_to(NOTEBOOKS).as_posix()) for path in PATHS]


def faults(text: str) -> list[str]:
    """Return the faults of a notebook file, in words."""
    notebook = json.loads(text)
    found = [f"{len(text.encode())} bytes, more than {MOST_BYTES}"] if len(text.encode()) > MOST_BYTES else []
    if "widgets" in notebook["metadata"]:
        found.append("holds widget state: run `make notebooks`")
    return [*found, *heading_faults(notebook), *prose_faults(notebook), *code_faults(notebook)]


def heading_faults(notebook: dict) -> list[str]:
    cells = notebook["cells"]
    levels = [levels_in(cell) for cell in cells]
    flat = [level for cell_levels in levels for level in cell_levels]
    found = []
    if flat.count(1) != 1 or not levels or 1 not in levels[0]:
        found.append("needs exactly one H1, in its first cell")
    found += [f"jumps from H{a} to H{b}" for a, b in pairwise(flat) if b > a + 1]
    return found


def prose_faults(notebook: dict) -> list[str]:
    texts = (cell["source"] if cell["cell_type"] == "markdown" else "" for cell in notebook["cells"])
    return [
        f"cell {index} says {number[0]!r}: compute it"
        for index, text in enumerate(texts)
        for number in TYPED_NUMBER.finditer(CODE.sub("", "".join(text)))
    ]


def levels_in(cell: dict) -> list[int]:
    if cell["cell_type"] != "markdown":
        return []
    text = FENCED.sub("", "".join(cell["source"]))
    return [len(marks) for marks in re.findall(r"(?m)^(#{1,6}) ", text)]


def code_faults(notebook: dict) -> list[str]:
    found = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code" or not "".join(cell["source"]).strip():
            continue
        if cell["execution_count"] is None:
            found.append(f"cell {number} was not run: run `make notebooks`")
        if any(output["output_type"] == "error" for output in cell["outputs"]):
            found.append(f"cell {number} ends in an error")
        if WITHOUT_WIDGETS in text_of(cell["outputs"]):
            found.append(f"cell {number} has no picture of its panel: it was not predicted in time")
        if path := MACHINE_PATH.search(text_of(cell["outputs"])):
            found.append(f"cell {number} shows a path of one machine: {path[0]}")
    return found


def text_of(value: object) -> str:
    """All text in an output, without pictures, whose base64 may look like anything."""
    if isinstance(value, dict):
        return "\n".join(text_of(item) for key, item in value.items() if not key.startswith("image/"))
    return "\n".join(map(text_of, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("path", SHIPPED)
def test_a_notebook_is_committed_clean(path):
    found = faults(path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def dead_links(path: Path) -> list[str]:
    """Links of a notebook's text to files that are not there."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = (CODE.sub("", "".join(cell["source"])) for cell in cells if cell["cell_type"] == "markdown")
    return [link for text in texts for link in LINK.findall(text) if not (path.parent / link).exists()]


@pytest.mark.parametrize("path", SHIPPED)
def test_its_links_lead_to_files(path):
    assert dead_links(path) == []


def test_a_dead_link_is_found(tmp_path):
    text = "[a](here.ipynb#part), [b](gone.ipynb#part), [c](https://pytorch.org/docs), [d](#part), `[e](code.py)`"
    path = tmp_path / "here.ipynb"
    path.write_text(notebook(markdown(text)))
    assert dead_links(path) == ["gone.ipynb"]


def markdown(source: str) -> dict:
    return {"cell_type": "markdown", "source": source}


def code(count: int | None = 1, **output) -> dict:
    outputs = [output] if output else []
    return {"cell_type": "code", "source": "run()", "execution_count": count, "outputs": outputs}


def notebook(*cells: dict, **metadata) -> str:
    return json.dumps({"metadata": metadata, "cells": [markdown("# Title"), *cells]})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (notebook(widgets={}), "widget state"),
        (notebook(markdown("x" * MOST_BYTES)), "more than 300000"),
        (notebook(markdown("# Second title")), "exactly one H1"),
        (json.dumps({"metadata": {}, "cells": [code(), markdown("# Late title")]}), "exactly one H1"),
        (notebook(markdown("### Too deep")), "jumps from H1 to H3"),
        (notebook(markdown("It takes 412 MiB.")), "says '412 MiB': compute it"),
        (notebook(markdown("Nearly 1.5 times as much.")), "says '1.5 times'"),
        (notebook(markdown("It saves 76% of it.")), "says '76%'"),
        (notebook(code(None)), "was not run"),
        (notebook(code(output_type="display_data", data={"text/plain": WITHOUT_WIDGETS})), "no picture of its panel"),
        (notebook(code(output_type="error", ename="ValueError")), "ends in an error"),
        (notebook(code(output_type="stream", text=["in /home/ann/memlab/run.py"])), "/home/ann/memlab/run.py"),
        (notebook(code(output_type="stream", text=["/tmp/ipykernel_1/2.py:3: Warning"])), "/tmp/ipykernel_1/2.py"),
    ],
)
def test_each_fault_is_found(text, fault):
    (found,) = faults(text)
    assert fault in found


def test_a_clean_notebook_has_no_fault():
    picture = {"output_type": "display_data", "data": {"image/png": "/tmp/aB3/x", "text/plain": "<Figure>"}}
    fenced = markdown("```python\n# not a heading\nsize = '3 GiB'\n```")
    prose = markdown("A batch of 32 on a T4, `budget='3 GiB'`, bfloat16 and GPT-2: 25 minutes.")
    assert faults(notebook(markdown("## A"), markdown("### B"), markdown("## C"), code(**picture), fenced, prose)) == []
