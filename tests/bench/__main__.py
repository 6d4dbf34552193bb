"""``python -m tests.bench``: the table of what memlab costs."""

import os
import platform

import torch

from tests.bench import panel, plain_step, prediction, xray

FIGURES = (prediction, xray, plain_step, panel)


def main() -> None:
    """Measure and print, a row as soon as it is known."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}, load {os.getloadavg()}")
    print(f"{'what':<60} {'reach':<14} figure")
    for module in FIGURES:
        for what, reach, figure in module.figures():
            print(f"{what:<60} {reach:<14} {figure}", flush=True)


main()
