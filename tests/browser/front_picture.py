"""``python -m tests.browser.front_picture`` takes the front page's picture anew: the panel of notebook 00, used.

The first run's settings are pinned as A, with half of the batch beside it.
"""

import shutil
import tempfile
from pathlib import Path

from tests.browser.jupyter import browser_page, jupyterlab, run_all_cells, wait_for_all_cells
from tests.browser.panel import Panel
from tests.notebooks.cells import ROOT

NOTEBOOKS = ROOT / "notebooks"
FIRST = "00_start_here.ipynb"
HALF = 4  # of the eight sequences with which the panel begins


def main() -> None:
    """Write ``notebooks/panel.png``, at the size of the notebooks that a reader sees."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as home:
        folder = Path(name)
        shutil.copy(NOTEBOOKS / FIRST, folder)
        with jupyterlab(folder, Path(home)) as address, browser_page(1180, 1000) as page:
            page.goto(address.format(FIRST))
            run_all_cells(page)
            page.keyboard.press("Control+b")  # the list of files makes room
            wait_for_all_cells(page)
            panel = Panel(page)
            panel.settle()
            panel.press("Pin as A")
            for _ in range(HALF):
                panel.choose("ArrowLeft")
            panel.box.evaluate("panel => panel.scrollIntoView()")
            whole, code = panel.box.bounding_box(), panel.box.locator(".memlab-code").bounding_box()
            height = code["y"] + code["height"] - whole["y"]  # what follows are words
            page.screenshot(path=str(NOTEBOOKS / "panel.png"), clip=whole | {"height": height})


if __name__ == "__main__":
    main()
