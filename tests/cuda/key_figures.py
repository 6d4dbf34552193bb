"""The key figure of each notebook: what PyTorch's own CUDA code allocates on a stand-in, not measured on a GPU.

``python -m tests.standin T4 -m tests.cuda.key_figures`` writes ``notebooks/recorded/key-figures.json``, with the loops
of the notebooks' own cells; they show the figures where there is no GPU.
"""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from memlab import lab
from memlab.files import write_atomically
from memlab.lab.key_figures import RECORD, count
from memlab.lab.recorded import folder
from tests.notebooks.cells import NOTEBOOKS, code_cells, needed, run


def asked(notebook: Path) -> tuple[str, Any, dict[str, Any]] | None:
    """Return what a notebook's cell gives to ``key_figure``: number, loop, settings; None if it has no such cell."""
    cells = code_cells(notebook)
    wanted = [cell for cell in cells if "key_figure(" in cell]
    if not wanted:
        return None
    calls: list[tuple[str, Any, dict[str, Any]]] = []
    noted = patch.object(lab, "key_figure", lambda number, train, **settings: calls.append((number, train, settings)))
    with noted, patch.object(sys, "path", [str(notebook.parent), *sys.path]):  # where the loops of several ranks are
        run(needed(cells, wanted))
    ((number, train, settings),) = calls
    settings.pop("gpu", None)
    return number, train, settings


def counted(train: Any, settings: dict[str, Any]) -> int:
    """The peak in bytes; it must fit the card."""
    trace = count(train, **settings)
    assert trace.oom is None, trace.sentence
    return trace.peak_allocated


if __name__ == "__main__":
    figures = {number: counted(train, settings) for number, train, settings in filter(None, map(asked, NOTEBOOKS))}
    told = {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "figures": figures}
    write_atomically(folder() / RECORD, json.dumps(told, indent=1).encode() + b"\n")
