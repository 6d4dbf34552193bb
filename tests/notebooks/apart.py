"""Work in a process of its own, forked from one that has imported and once used all that notebooks use.

What a cell sets in torch stays there, so each check of a notebook needs a process; to import torch and to predict for
the first time takes longer than most checks.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.notebooks.cells import ROOT

PREPARED = "tests.notebooks.prepared"


def apart(work: Callable[[Path], Any], notebook: Path) -> Any:
    """Return the result of the work on the notebook, done in a process of its own.

    Raises:
        Exception: what the work raises.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PREPARED])
    with ProcessPoolExecutor(1, mp_context=context, initializer=_at_home) as pool:
        return pool.submit(work, notebook).result()


def _at_home() -> None:
    """A notebook imports what lies beside it; ranks that it starts do so too."""
    sys.path[:0] = paths = [str(ROOT), str(ROOT / "notebooks")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.chdir(ROOT)
