"""The memory of loops in CUDA graphs, step by step, in PyTorch's CUDA build on the stand-in.

``python -m tests.cuda.graphs [CARD ...] [--write]`` compares predictions with ``tests/vgpu/compiled/graphs.json``, or
adds to it what is not there. As in ``tests/cuda/compiled.py`` each loop has a process of its own, twice.
"""

import argparse
import gc
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.cuda.environment import python_with_cuda
from tests.environments import ROOT
from tests.vgpu.compiled.loops import GRAPHS, counted

FILE = ROOT / "tests" / "vgpu" / "compiled" / "graphs.json"
CARDS = ("T4", "A100-40GB")
STEPS = 8


def measured(name: str) -> list[list[int]]:
    """The bytes of each step on the card that is there."""
    figures: list[list[int]] = []
    loop = counted("cuda", loop=GRAPHS[name], figures=figures)
    for _ in range(STEPS):
        next(loop)
    return figures


def predicted(name: str, card: str) -> tuple[Any, list[list[int]]]:
    """The same for a card that is not there, with the trace."""
    from memlab import predict

    figures: list[list[int]] = []
    trace = predict(partial(counted, loop=GRAPHS[name], figures=figures), gpu=card, steps=STEPS)
    return trace, figures


def _asked(python: Path, card: str, name: str) -> Any:
    words = [python, "-m", "tests.standin", card, "-m", "tests.cuda.graphs", "--measure", name]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


def write(cards: list[str]) -> None:
    """Measure those loops on these cards that are not in the file."""
    python = python_with_cuda("2.13.0")
    recorded = json.loads(FILE.read_text()) if FILE.exists() else {}
    for card in cards or CARDS:
        of_card = recorded.setdefault(card, {})
        for name in [name for name in GRAPHS if name not in of_card]:
            _asked(python, card, name)
            of_card[name] = _asked(python, card, name)
            print(card, name, of_card[name], flush=True)
            FILE.write_text(_lines(recorded))


def _lines(recorded: dict[str, dict[str, list[list[int]]]]) -> str:
    """As JSON with a line for each loop."""
    cards = [
        f" {json.dumps(card)}: {{\n"
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in loops.items())
        + "\n }"
        for card, loops in recorded.items()
    ]
    return "{\n" + ",\n".join(cards) + "\n}\n"


def compare(cards: list[str]) -> None:
    """Predict all loops on these cards, beside what was measured."""
    recorded = json.loads(FILE.read_text())
    gc.disable()  # as in tests/cuda/compiled.py
    for card in cards or recorded:
        for name, figures in recorded[card].items():
            trace, found = predicted(name, card)
            told = "equal" if found == figures else f"{found} {figures}"
            print(f"{card:12}{name:26}{told}", *trace.notes, flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cards", nargs="*", help=f"default: those in the file; with --write {', '.join(CARDS)}")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", metavar="LOOP")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure)))
    else:
        (write if options.write else compare)(options.cards)


if __name__ == "__main__":
    sys.exit(main())
