"""The memory of compiled loops in PyTorch's CUDA build on the stand-in, in ``tests/vgpu/compiled/recorded.json``.

``python -m tests.cuda.compiled [CARD ...] [--write]`` compares predictions with that file, or adds to it what is not
there, in the environment of ``make test-cuda``. Each loop has a process of its own, twice: in the first, compiling may
time kernels on the card, which takes memory; in the second, what was chosen is read from PyTorch's cache.
"""

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.cuda.environment import python_with_cuda
from tests.environments import ROOT
from tests.vgpu.compiled.loops import LOOPS

FILE = ROOT / "tests" / "vgpu" / "compiled" / "recorded.json"
CARDS = ("T4", "A100-40GB", "H100", "RTX 5090", "B200")
STEPS = 4


def measured(name: str) -> tuple[int, int]:
    """The most bytes allocated and reserved in a few steps on the card that is there."""
    loop = LOOPS[name]("cuda")
    for _ in range(STEPS):
        next(loop)
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def asked(python: Path, card: str, name: str) -> Any:
    """The same of a card, in a new process."""
    words = [python, "-m", "tests.standin", card, "-m", "tests.cuda.compiled", "--measure", name]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


def write(cards: list[str]) -> None:
    """Measure those loops on these cards that are not in the file."""
    python = python_with_cuda("2.13.0")
    recorded = json.loads(FILE.read_text()) if FILE.exists() else {}
    for card in cards or CARDS:
        of_card = recorded.setdefault(card, {})
        for name in LOOPS.keys() - of_card.keys():
            asked(python, card, name)
            of_card[name] = asked(python, card, name)
            print(card, name, of_card[name], flush=True)
            FILE.write_text(json.dumps(recorded, indent=1) + "\n")


def compare(cards: list[str]) -> None:
    """Predict all loops on these cards, beside what was measured."""
    from memlab import predict

    recorded = json.loads(FILE.read_text())
    gc.disable()  # as in a process that has just begun: what the compiler leaves in cycles is there in the next steps
    for card in cards or recorded:
        for name, bytes_taken in recorded[card].items():
            trace = predict(LOOPS[name], gpu=card, steps=STEPS)
            found = [trace.peak_allocated, trace.peak_reserved]
            told = "equal" if found == bytes_taken else f"{found[0] / bytes_taken[0] - 1:+.3%} {found} {bytes_taken}"
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
