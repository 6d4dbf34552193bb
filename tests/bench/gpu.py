"""``python -m tests.bench.gpu``: the table for a machine with a GPU; without one, a small rehearsal on the CPU."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from memlab.lab import recorded
from tests.bench import plain_step, together, xray
from tests.notebooks.cells import NOTEBOOKS

# Run behind each notebook: keeps what its panels measured, for readers without this GPU.
KEEP = """
from pathlib import Path
from memlab.lab import Lab, recorded
for panel in [value for value in globals().values() if isinstance(value, Lab)]:
    recorded.keep(panel.title, panel.traces, Path({where!r}))
"""


def notebooks() -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure): every notebook at size gpu, from the first cell to the last; its runs are kept."""
    on_gpu = torch.cuda.is_available()
    os.environ["MEMLAB_SIZE"] = "gpu" if on_gpu else "ci"
    with tempfile.TemporaryDirectory() as aside:
        yield from _run_all(recorded.folder() if on_gpu else Path(aside))


def _run_all(where: Path) -> Iterator[tuple[str, str, str]]:
    import nbclient
    import nbformat

    for path in NOTEBOOKS:
        begun = time.perf_counter()
        try:
            notebook = nbformat.read(path, as_version=4)
            notebook.cells.append(nbformat.v4.new_code_cell(KEEP.format(where=str(where))))
            nbclient.NotebookClient(notebook, timeout=300).execute()
            figure = f"{time.perf_counter() - begun:.0f} s"
        except nbclient.exceptions.CellExecutionError as error:
            figure = f"failed: {str(error).strip().splitlines()[-1]}"
        yield f"notebook {path.stem}, size {os.environ['MEMLAB_SIZE']}", "", figure
    yield "recorded runs of panels", "", f"{len(list(where.glob('*.json')))} files in {where}"


def main() -> None:
    """Measure and print, a row as soon as it is known."""
    on_gpu = torch.cuda.is_available()
    here = torch.device("cuda" if on_gpu else "cpu")
    name = torch.cuda.get_device_name() if on_gpu else "no GPU: a rehearsal on the CPU"
    print(f"torch {torch.__version__}, {name}")
    for rows in (plain_step.figures(here), xray.figures(here), together.figures(), notebooks()):
        for what, reach, figure in rows:
            print(f"{what:<45} {reach:<12} {figure}", flush=True)


if __name__ == "__main__":
    main()
