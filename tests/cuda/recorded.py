"""Loops that were measured on the stand-in's cards, in a file: measured, and compared with predictions.

Each loop has a process of its own, twice: in the first, compiling may time kernels on the card, which takes memory; in
the second, what was chosen is read from PyTorch's cache.
"""

import argparse
import gc
import importlib.metadata
import json
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cuda.environment import python_with_cuda
from tests.environments import ROOT

TORCH = "2.13.0"  # for which all is measured


@dataclass(frozen=True)
class Recorded:
    """A group of such loops.

    Attributes:
        module: the name of the command.
        about: its help.
        file: what was measured, by PyTorch's version, by card and by loop.
        cards: those to measure on.
        loops: their names.
        measure: a loop on the card that is there.
        compare: the trace that is predicted of a loop on a card, and words on it beside what was measured.
    """

    module: str
    about: str | None
    file: Path
    cards: Sequence[str]
    loops: Iterable[str]
    measure: Callable[[str], Any]
    compare: Callable[[str, str, Any], tuple[Any, str]]

    def main(self) -> None:
        """The command."""
        parser = argparse.ArgumentParser(description=self.about)
        parser.add_argument(
            "cards", nargs="*", help=f"default: those in the file; with --write {', '.join(self.cards)}"
        )
        parser.add_argument("--write", action="store_true")
        parser.add_argument("--torch", default=TORCH, help=f"the version to measure, by default {TORCH}")
        parser.add_argument("--measure", metavar="LOOP")
        options = parser.parse_args()
        if options.measure:
            print(json.dumps(self.measure(options.measure)))
        elif options.write:
            self._write(options.torch, options.cards)
        else:
            self._compare(options.cards)

    def of_this_torch(self) -> Any:
        """The figures of the version in use, by card and by loop; empty where there are none."""
        version = importlib.metadata.version("torch").partition("+")[0]
        return json.loads(self.file.read_text()).get(version, {})

    def _asked(self, python: Path, card: str, name: str) -> Any:
        words = [python, "-m", "tests.standin", card, "-m", self.module, "--measure", name]
        run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None

    def _write(self, torch: str, cards: list[str]) -> None:
        """Measure those loops on these cards that are not in the file."""
        python = python_with_cuda(torch)
        recorded = json.loads(self.file.read_text()) if self.file.exists() else {}
        for card in cards or self.cards:
            of_card = recorded.setdefault(torch, {}).setdefault(card, {})
            for name in [name for name in self.loops if name not in of_card]:
                self._asked(python, card, name)
                of_card[name] = self._asked(python, card, name)
                print(card, name, of_card[name], flush=True)
                self.file.write_text(_lines(recorded))

    def _compare(self, cards: list[str]) -> None:
        """Predict all loops on these cards, beside what was measured."""
        recorded = self.of_this_torch()
        gc.disable()  # as in a process that has just begun: what the compiler leaves in cycles is there afterwards
        for card in cards or recorded:
            for name, figures in recorded[card].items():
                trace, told = self.compare(name, card, figures)
                print(f"{card:12}{name:26}{told}", *trace.notes, flush=True)


def _lines(recorded: Any) -> str:
    """As JSON with a line for each loop."""

    def inside(value: Any, depth: int) -> str:
        if depth == 3:
            return json.dumps(value)
        parts = [f"{' ' * (depth + 1)}{json.dumps(name)}: {inside(part, depth + 1)}" for name, part in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{' ' * depth}}}"

    return f"{inside(recorded, 0)}\n"
