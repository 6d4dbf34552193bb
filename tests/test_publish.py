"""Each notebook begins with the cell that installs memlab, and with a badge once there is an address."""

import json
import subprocess
import sys
from importlib import util

import pytest

from memlab.errors import NotWritten
from memlab.shipped import bring_loops
from tests.notebooks.cells import NOTEBOOKS, ROOT
from tests.publish import CELL_ID, LOOPS, address, install_cell, published

URL = "https://github.com/someone/memlab"
TITLE = install_cell("", False, [])["source"][0]


@pytest.fixture
def notebook():
    cells = [
        {"cell_type": "markdown", "id": "a", "source": ["# Title\n", "\n", "**Why?**\n", "\n", "Text."]},
        {"cell_type": "code", "id": "b", "source": ["import memlab"]},
    ]
    return {"cells": cells, "metadata": {}}


def text(cell):
    return "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_is_as_the_command_writes_it(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    url = address((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert published(notebook, path.relative_to(ROOT).as_posix(), url) == notebook, "run make publish"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_has_the_cell_once(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert sum("".join(cell["source"]).startswith(TITLE) for cell in cells) == 1


def test_the_address_is_in_the_cell_and_the_badge_and_goes_again(notebook):
    before = json.dumps(notebook)
    there = published(json.loads(before), "notebooks/01.ipynb", URL)
    assert f'"git+{URL}"' in text(there["cells"][1])
    badge = "colab.research.google.com/github/someone/memlab/blob/main/notebooks/01.ipynb"
    assert text(there["cells"][0]).count(badge) == 1
    assert published(json.loads(json.dumps(there)), "notebooks/01.ipynb", URL) == there
    gone = published(json.loads(json.dumps(there)), "notebooks/01.ipynb", "")
    assert text(gone["cells"][0]) == text(notebook["cells"][0])
    assert "git+" not in text(gone["cells"][1])


def test_only_what_imports_loops_gets_them(notebook):
    notebook["cells"][1]["source"] = ["from ranks import fsdp"]
    assert text(published(notebook, "x", "")["cells"][1]).endswith(LOOPS)


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """The commands that the cell runs, in a folder without memlab."""
    commands = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    return commands


def test_where_memlab_is_missing_the_wheel_is_installed_and_nothing_else(pip, tmp_path):
    (tmp_path / "memlab-0.1.0-py3-none-any.whl").touch()
    exec(text(install_cell(URL, False, [])), {})
    assert pip == [[sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "memlab-0.1.0-py3-none-any.whl"]]


def test_without_a_wheel_the_address_is_taken(pip):
    exec(text(install_cell(URL, False, [])), {})
    assert pip[0][-1] == f"git+{URL}"


def test_without_either_it_says_what_to_do(pip):
    with pytest.raises(AssertionError, match="put its wheel beside this notebook"):
        exec(text(install_cell("", False, [])), {})
    assert pip == []


def test_where_memlab_is_there_nothing_happens(pip, monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: name)
    exec(text(install_cell("", True, [])), {})
    assert pip == []


def test_loops_come_beside_a_notebook_and_replace_nothing(tmp_path):
    bring_loops(tmp_path)
    names = {path.name for path in (tmp_path / "ranks").iterdir()}
    assert "fsdp.py" in names
    (tmp_path / "ranks" / "fsdp.py").write_text("mine")
    bring_loops(tmp_path)
    assert (tmp_path / "ranks" / "fsdp.py").read_text() == "mine"


def test_loops_that_a_link_leads_to_are_used_and_others_are_not_written_there(tmp_path):
    bring_loops(tmp_path / "there")
    here = tmp_path / "here"
    here.mkdir()
    (here / "ranks").symlink_to(tmp_path / "there" / "ranks")
    bring_loops(here)
    (tmp_path / "there" / "ranks" / "fsdp.py").unlink()
    with pytest.raises(NotWritten, match="leads out of"):
        bring_loops(here)


def test_what_was_saved_of_the_cell_stays(notebook):
    there = published(notebook, "x", "")
    (cell,) = (cell for cell in there["cells"] if cell["id"] == CELL_ID)
    cell["execution_count"] = 7
    assert published(there, "x", "")["cells"][1]["execution_count"] == 7


def test_a_notebook_on_its_own_gets_its_loops(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(text(install_cell("", True, [])), {})
    assert (tmp_path / "ranks" / "fsdp.py").exists()
