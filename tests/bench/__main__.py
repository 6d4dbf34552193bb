"""``python -m tests.bench``: the table of what memlab costs."""

import os
import platform
from functools import partial

import torch

from tests.bench import dragging, panel, plain_step, prediction, xray

CPU = torch.device("cpu")
MEASURED = (partial(xray.figures, CPU), partial(plain_step.figures, CPU))
FIGURES = (prediction.figures, dragging.figures, *MEASURED, panel.figures)


def main() -> None:
    """Measure and print, a row as soon as it is known."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}, load {os.getloadavg()}")
    print(f"{'what':<60} {'reach':<14} figure")
    for figures in FIGURES:
        for what, reach, figure in figures():
            print(f"{what:<60} {reach:<14} {figure}", flush=True)


main()
