"""Every challenge refuses the stub that a notebook comes with, and accepts the solution."""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SOLUTIONS = sorted((NOTEBOOKS / "solutions").glob("[0-9]*.ipynb"))
POSED = "challenge = Challenge("


@pytest.fixture(autouse=True)
def small_and_quiet(monkeypatch):
    monkeypatch.setenv("MEMLAB_SIZE", "ci")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for models this small, a second thread only costs time


solved = pytest.mark.parametrize("solution", [pytest.param(path, id=path.stem) for path in SOLUTIONS])


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def through_challenge(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what follows its challenge."""
    headings = [index for index, cell in enumerate(notebook.cells) if cell.source.startswith("## ")]
    begin = next(index for index in headings if notebook.cells[index].source.startswith("## Challenge"))
    end = next((index for index in headings if index > begin), len(notebook.cells))
    notebook.cells = notebook.cells[:end]
    return notebook


def last_text(notebook: nbformat.NotebookNode, folder: Path) -> str:
    """What the last code cell shows, after the notebook has run in ``folder``."""
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    return "".join(output.data["text/markdown"] for output in last.outputs)


@solved
def test_the_stub_fails_the_check_without_an_error(solution, tmp_path):
    assert "Not yet." in last_text(through_challenge(read(NOTEBOOKS / solution.name)), tmp_path)


@solved
def test_the_solution_passes(solution, tmp_path):
    assert "Passed." in last_text(read(solution), tmp_path)


@solved
def test_the_solution_solves_the_challenge_of_the_notebook(solution):
    def posed(path):
        lines = [line for cell in read(path).cells for line in cell.source.splitlines()]
        return [line for line in lines if line.startswith(POSED)]

    assert len(posed(solution)) == 1
    assert posed(solution) == posed(NOTEBOOKS / solution.name)
