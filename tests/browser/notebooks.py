"""Every notebook as its reader meets it, in a real JupyterLab: all cells run, and every panel is used.

``make test-browser`` runs it; it takes too long for ``make test``, which runs the cells alone.
"""

import os
import shutil

import pytest
from playwright.sync_api import Page

from tests.browser.axe import findings
from tests.browser.jupyter import browser_page, jupyterlab, run_all_cells, save, shut_kernels_down, wait_for_all_cells
from tests.browser.panel import Panel, panels
from tests.browser.walk import controls, goes_down, open_all, operate, save_all, unnamed, unseen, walk
from tests.notebooks.cells import NOTEBOOKS, ROOT, code_cells, faults

# Of every kind of panel one: a slider, switches, compiled code, doubling steps and ranks, menus alone, a budget.
FEW = ("00", "07", "14", "16", "17", "20")
WALKED = ("00", "16")  # every control of whose panel is used by keys, one with a slider, one with ranks
CHOSEN = [path for path in NOTEBOOKS if "MEMLAB_QUICK" not in os.environ or path.name.startswith(FEW)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebooks")
    shutil.copytree(ROOT / "notebooks" / "ranks", folder / "ranks")
    for notebook in NOTEBOOKS:
        shutil.copy(notebook, folder)
    return folder


@pytest.fixture(scope="module")
def jupyter(folder, tmp_path_factory):
    with jupyterlab(folder, tmp_path_factory.mktemp("jupyter")) as address:
        yield address


@pytest.fixture(scope="module")
def page():
    with browser_page(1600, 1000) as page:
        yield page


def unfold(page: Page) -> None:
    """Open what is folded away, as a reader does who wants more."""
    folded = page.locator(".jp-showHiddenCellsButton:visible")
    while folded.count():
        folded.first.click()


def choose_theme(page: Page, name: str) -> None:
    """Dark or Light, from JupyterLab's menu."""
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.get_by_text("Theme", exact=True).hover()
    page.get_by_text(f"JupyterLab {name}", exact=True).click()
    page.locator(f'body[data-jp-theme-name="JupyterLab {name}"]').wait_for(state="attached")


@pytest.mark.parametrize("notebook", CHOSEN, ids=lambda path: path.stem)
def test_a_reader_runs_the_notebook_and_uses_its_panels(folder, jupyter, page, notebook):
    page.goto(jupyter.format(notebook.name))
    run_all_cells(page)
    wait_for_all_cells(page, meanwhile=Panel(page).move)
    unfold(page)
    count = sum("Lab(" in cell for cell in code_cells(notebook))
    assert panels(page).count() == count > 0
    for place in range(count):
        panel = Panel(page, place)
        panel.move()
        panel.run()
        panel.shoot(f"{notebook.stem}_{place}")
    walked = [Panel(page)] if notebook.name.startswith(WALKED) else []
    for panel in walked:
        assert operate(panel) == []
        open_all(panel)
        assert unnamed(panel) == []
        assert walk(panel) == list(range(len(controls(panel))))
        assert goes_down(panel)
        assert len(save_all(panel)) == 3
        panel.shoot(f"{notebook.stem}_open")
    for theme in ("Dark", "Light"):
        choose_theme(page, theme)
        assert findings(page, ".jp-OutputArea-output") == []
        assert [unseen(panel) for panel in walked] == [[] for panel in walked]
    assert list(faults(save(page, folder / notebook.name))) == []
    shut_kernels_down(page, jupyter)
