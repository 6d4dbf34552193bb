"""The first allocation in which a prediction differs from PyTorch's CUDA build, and the rules that name its operator.

``python -m tests.standin CARD -m tests.cuda.first_difference CASE``, with the Python that ``make test-cuda`` has
installed. CASE is a part of the name of a loop in ``tests/loops``, or ``FILE.py:FUNCTION``.
"""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch

from memlab import compare_snapshots, predict
from memlab.cli.functions import load_function
from memlab.devices import Cuda
from memlab.snapshots import Comparison
from memlab.vgpu import CARDS
from memlab.vgpu.scratch import table
from tests.environments import ROOT
from tests.loops.cases import all_cases
from tests.loops.ordinary import LOOPS
from tests.record.card import keep_history
from tests.record.events import operators_in

STEPS = 3


def found(name: str) -> tuple[Callable[[], Callable[..., Any]], Mapping[str, Any]]:
    """Return a function that makes the loop of that name, and the loop's settings."""
    if ".py:" in name:
        path = os.path.abspath(name)
        return lambda: load_function(path), {}
    case = next((case for case in (*all_cases(), *LOOPS) if name in case.name), None)
    if case is None:
        sys.exit(f"no loop is called {name!r}: give a part of a name in tests/loops, or FILE.py:FUNCTION")
    print(case.name)
    return lambda: case.made()[0], case.settings


def take(train: Callable[..., Any], settings: Mapping[str, Any], file: Path) -> None:
    """Run the loop on the card that is there, and write what its allocator did."""
    Cuda(torch.device("cuda")).release()  # of what was done here before
    keep_history(True)
    generator = train(torch.device("cuda"), **settings)
    for _ in range(STEPS):
        next(generator, None)
    torch.cuda.memory._dump_snapshot(str(file))
    keep_history(False)


def operators(comparison: Comparison) -> list[str]:
    """The operators that asked for the allocation which the prediction has not, with overloads, the innermost first."""
    if comparison.parted is None:
        return []
    replay = comparison.first.replay
    entry = replay.snapshot.trace[replay.order[comparison.parted].begin - 1]
    return [name for name in dict.fromkeys(operators_in(entry.get("frames", ()))) if not name.startswith("empty")]


def rules(operator: str) -> Iterator[str]:
    """Yield each line that names an operator, ``var`` or ``var_correction``, in the file that has its rule."""
    for kind in table.KINDS:
        for packet in kind.RULES:
            name = packet.__name__
            if operator in {name, *(f"{name}_{overload}" for overload in packet.overloads())}:
                yield from _lines(Path(kind.__file__), name)


def _lines(file: Path, name: str) -> Iterator[str]:
    named = re.compile(rf"aten\.{name}\b")
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if named.search(line):
            yield f"{file.relative_to(ROOT)}:{number}: {line.strip()}"


def main(name: str) -> None:
    """Compare, and say where to look."""
    make, settings = found(name)
    card = next(card.name for card in CARDS.values() if card.driver_name == torch.cuda.get_device_name())
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # some of the loops save what they trained
        real, predicted = Path(folder, "cuda.pickle"), Path(folder, "predicted.pickle")
        take(make(), settings, real)
        predict(make(), gpu=card, steps=STEPS, snapshot=predicted, **settings)
        comparison = compare_snapshots(real, predicted)
    print(comparison.order or "The first allocation differs already, or one of the two has none.")
    for operator in operators(comparison):
        named = list(rules(operator))
        print(operator if named else f"{operator}, which no rule names")
        print(*(f"  {rule}" for rule in named), sep="\n", end="\n" * bool(named))


if __name__ == "__main__":
    main(*sys.argv[1:])
