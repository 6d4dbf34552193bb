"""``python -m tests.bench.gpu``: the table for a machine with a GPU; without one, a small rehearsal on the CPU."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.bench import together

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def notebooks() -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure): every notebook at size gpu, from the first cell to the last."""
    import nbclient
    import nbformat

    os.environ["MEMLAB_SIZE"] = "gpu" if torch.cuda.is_available() else "ci"
    for path in NOTEBOOKS:
        begun = time.perf_counter()
        try:
            nbclient.NotebookClient(nbformat.read(path, as_version=4), timeout=300).execute()
            figure = f"{time.perf_counter() - begun:.0f} s"
        except nbclient.exceptions.CellExecutionError as error:
            figure = f"failed: {str(error).strip().splitlines()[-1]}"
        yield f"notebook {path.stem}, size {os.environ['MEMLAB_SIZE']}", "", figure


def main() -> None:
    """Measure and print, a row as soon as it is known."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU: a rehearsal on the CPU"
    print(f"torch {torch.__version__}, {device}")
    for rows in (together.figures(), notebooks()):
        for what, reach, figure in rows:
            print(f"{what:<45} {reach:<12} {figure}", flush=True)


if __name__ == "__main__":
    main()
