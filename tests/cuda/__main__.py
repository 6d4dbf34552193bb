"""``python -m tests.cuda --torch 2.13.0``: memlab's CUDA path on cards that are not there. See CONTRIBUTING.md."""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cuda.environment import ROOT, python_with_cuda
from tests.standin.build import NoStandIn, check_tools

CARDS = ("T4", "A100-40GB", "H100")
QUICK_NOTEBOOKS = ("01", "06", "15")  # the allocator's own, checkpointing, the allocator


def commands(python: Path, card: str, quick: bool) -> Iterator[list[str | Path]]:
    """What is run on a card, one process after the other."""
    on_card = [python, "-m", "tests.standin", card]
    yield [*on_card, "-m", "pytest", "-p", "no:cacheprovider", "tests/cuda"]
    yield [python, "-m", "tests.cuda.notebooks", card, *(QUICK_NOTEBOOKS if quick else ())]


def passes(command: list[str | Path]) -> bool:
    """Run a part; whether it went well."""
    begun = time.monotonic()
    words = " ".join(map(str, command[1:]))
    print(f"--- {words}", flush=True)
    passed = subprocess.run(command, cwd=ROOT).returncode == 0
    print(f"--- {'passed' if passed else 'FAILED'} after {time.monotonic() - begun:.0f} s: {words}", flush=True)
    return passed


def main() -> int:
    """0 if all went well; 2 with a sentence if this machine has not what is needed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuda", description=__doc__)
    parser.add_argument("--torch", required=True, metavar="X.Y.Z", help="the version, whose CUDA build is installed")
    parser.add_argument("--cards", nargs="+", default=CARDS, metavar="CARD", help="(default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="the part that runs with every submission: one card")
    arguments = parser.parse_args()
    try:
        check_tools()
    except NoStandIn as error:
        print(error, file=sys.stderr)
        return 2
    python = python_with_cuda(arguments.torch)
    cards = arguments.cards[:1] if arguments.quick else arguments.cards
    failed = [command for card in cards for command in commands(python, card, arguments.quick) if not passes(command)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
