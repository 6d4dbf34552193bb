"""A notebook in the other front ends that people have: Notebook 7, and the classic one with ipywidgets 7, as in Colab.

``make test-browser`` runs it. JupyterLab has all notebooks in ``notebooks.py``, Voila the kiosk in ``kiosk.py``.
"""

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.jupyter import CLASSIC, NOTEBOOK, browser_page, run_all_cells, save, serve, wait_for_all_cells
from tests.browser.panel import Panel
from tests.environments import ROOT, pinned, python_of, python_with
from tests.notebooks.cells import faults

FILE = ROOT / "notebooks" / "00_start_here.ipynb"
COLAB = ("ipykernel==6.17.1", "ipywidgets==7.7.1", "anywidget==0.11.0", "notebook==6.5.7")
# Another Python that has them.
OTHER_PYTHON = os.environ.get("MEMLAB_CLASSIC_PYTHON")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for kernels in which memlab is not installed
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(FILE, folder)
    return folder


def run_all_classic_cells(page: Page) -> None:
    """Run the whole notebook in the classic front end, from its menu."""
    page.locator(".kernel_idle_icon").wait_for()
    page.locator("#celllink").click()
    page.locator("#run_all_cells").click()
    waiting = page.locator(".input_prompt").filter(has_text="*")
    waiting.first.wait_for(state="attached")
    expect(waiting).to_have_count(0, timeout=300_000)


def python_as_colab() -> Path:
    """An environment with Colab's versions, on its Python 3.12 where there is one."""
    base = python_of("3.12")
    wanted = [*pinned(without=["ipywidgets", "anywidget"]), *COLAB]
    return python_with(f"classic-notebook-{Path(base).name}", wanted, base)


def check(page: Page, file: Path, name: str) -> None:
    """The panel answers, no cell has failed, and the notebook that is saved has the panel's picture."""
    panel = Panel(page)
    panel.move()
    panel.run()
    panel.shoot(name)
    page.locator("h1").first.click()  # with a panel in focus, the classic notebook takes no keys
    notebook = save(page, file)
    assert list(faults(notebook)) == []
    (saved,) = (cell["outputs"] for cell in notebook["cells"] if "Lab(" in "".join(cell["source"]))
    assert "<img alt=" in "".join(saved[-1]["data"]["text/html"])


def test_notebook_7(folder, tmp_path):
    with serve(NOTEBOOK, folder, tmp_path) as address, browser_page(1400, 1000) as page:
        page.goto(address.format(FILE.name))
        run_all_cells(page)
        wait_for_all_cells(page)
        check(page, folder / FILE.name, "notebook_7")


def test_the_classic_notebook_with_ipywidgets_7(folder, tmp_path):
    python = OTHER_PYTHON or python_as_colab()
    with serve(CLASSIC, folder, tmp_path, python) as address, browser_page(1400, 1000) as page:
        page.goto(address.format(FILE.name))
        run_all_classic_cells(page)
        check(page, folder / FILE.name, "classic")
