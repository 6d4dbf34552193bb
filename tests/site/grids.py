"""``python -m tests.site.grids NOTEBOOK FILE``: the panels of a notebook, predicted, as HTML by the id of their cell.

A process of its own for each notebook: what its cells set in torch stays there.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from memlab import Lab
from memlab.lab.page import choose_axes, fragment, predict_grid
from tests.notebooks.cells import needed, run

CARDS = ("T4", "A100-40GB", "H100")


def labs(notebook: Path) -> Iterator[tuple[str, Lab]]:
    """Each panel and the id of its cell; of the cells before it those are run that it needs."""
    cells = [
        (cell["id"], "".join(cell["source"]))
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    sources = [source for _, source in cells]
    for name, source in cells:
        if "Lab(" in source:
            _, lab = run(needed(sources, [source]))
            if isinstance(lab, Lab):
                yield name, lab


def panels(notebook: Path) -> dict[str, str]:
    """The panel of each cell that shows one."""
    return {
        name: fragment(predict_grid(lab.session, choose_axes(lab.session, CARDS)), with_script=False)
        for name, lab in labs(notebook)
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(panels(Path(sys.argv[1]))), encoding="utf-8")
