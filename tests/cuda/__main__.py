"""``python -m tests.cuda --torch 2.13.0``: memlab's CUDA path on cards that are not there. See CONTRIBUTING.md."""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cuda.environment import python_with_cuda
from tests.environments import ROOT
from tests.standin.build import NoStandIn, check_tools

CARDS = ("T4", "A100-40GB", "H100")
RECORDED = (*CARDS, "RTX 5090", "B200")
CHECKED = ("package", "notebooks")
PARTS = (*CHECKED, "recordings")  # which writes files: `make recordings`
RANKS = "tests/cuda/test_ranks.py"
SETTINGS, SNAPSHOTS, TRACES = (f"tests/cuda/test_{name}.py" for name in ("settings", "snapshots", "traces"))
ON_THE_CARD = (
    "tests/cuda/test_card.py",
    "tests/cuda/test_first_difference.py",
    SNAPSHOTS,
    TRACES,
    RANKS,
    "tests/test_run.py",
)
QUICK = ("-k", "not 4-ranks and not of_compiled_code")
CHECKPOINTS, RESIDUALS = "tests/nets/test_checkpointing.py", "tests/nets/test_resnet.py"
# With all others that take a device.
ALSO_ON_THE_CARD = (SETTINGS, "tests/tracking", "tests/techniques", CHECKPOINTS, RESIDUALS)
AT_ONCE = 2  # each of them uses one core
QUICK_NOTEBOOKS = ("01", "07", "15")  # where bytes go; convolutions, which ask the real cuDNN; the allocator


def command(part: str, python: Path, card: str, quick: bool) -> list[str | Path]:
    """Return the command that runs a part on a card."""
    on_card = [python, "-m", "tests.standin", card]
    return {
        "package": [*on_card, "-m", "pytest", *ON_THE_CARD, *(QUICK if quick else ALSO_ON_THE_CARD)],
        "notebooks": [python, "-m", "tests.cuda.notebooks", card, *(QUICK_NOTEBOOKS if quick else ())],
        "recordings": [*on_card, "-m", "tests.cuda.recordings"],
    }[part]


def passes(words: list[str | Path]) -> bool:
    """Run a part; whether it went well."""
    begun = time.monotonic()
    told = " ".join(map(str, words[2:]))
    print(f"--- {told}", flush=True)
    told_them = os.environ | {"MEMLAB_TEST_DEVICE": "cuda", "MEMLAB_SIZE": "ci", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=ROOT, env=told_them, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    verdict = "FAILED" if done.returncode else "passed"
    print(f"{done.stdout}--- {verdict} after {time.monotonic() - begun:.0f} s: {told}", flush=True)
    return done.returncode == 0


def main() -> int:
    """0 if all went well; 2 with a sentence if this machine has not what is needed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cuda", description=__doc__)
    parser.add_argument("--torch", required=True, metavar="X.Y.Z", help="the version, whose CUDA build is installed")
    default = f"(default: {' '.join(CARDS)}; of recordings {' '.join(RECORDED)})"
    parser.add_argument("--cards", nargs="+", metavar="CARD", help=default)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help=f"(default: {' '.join(CHECKED)})")
    parser.add_argument("--quick", action="store_true", help="what runs with every submission: minutes, on a T4")
    asked = parser.parse_args()
    try:
        check_tools()
    except NoStandIn as error:
        print(error, file=sys.stderr)
        return 2
    python = python_with_cuda(asked.torch)
    cards = {"recordings": RECORDED} | dict.fromkeys(CHECKED, CARDS[:1] if asked.quick else CARDS)
    parts = asked.parts or CHECKED
    wanted = [command(part, python, card, asked.quick) for part in parts for card in asked.cards or cards[part]]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        passed = list(pool.map(passes, wanted))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
