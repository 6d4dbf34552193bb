"""memlab: measure, predict and teach the memory of neural network training.

The names below are loaded when they are first used, so ``import memlab`` takes no time and no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memlab.display import register as _register
from memlab.versions import __version__ as __version__

if TYPE_CHECKING:
    from memlab.errors import MemlabError as MemlabError
    from memlab.explaining import explain as explain
    from memlab.fitting import Fit as Fit
    from memlab.fitting import fit as fit
    from memlab.fitting import max_batch as max_batch
    from memlab.lab import Challenge as Challenge
    from memlab.lab import Claim as Claim
    from memlab.lab import Guess as Guess
    from memlab.lab import Lab as Lab
    from memlab.lab import Saving as Saving
    from memlab.run import measure as measure
    from memlab.run import predict as predict
    from memlab.run import sweep as sweep
    from memlab.sizes import size as size
    from memlab.snapshots import compare_snapshots as compare_snapshots
    from memlab.snapshots import explain_snapshot as explain_snapshot
    from memlab.trace import Trace as Trace
    from memlab.units import format_bytes as format_bytes

_HOMES = {
    "Challenge": "memlab.lab",
    "Claim": "memlab.lab",
    "Fit": "memlab.fitting",
    "Guess": "memlab.lab",
    "Lab": "memlab.lab",
    "MemlabError": "memlab.errors",
    "Saving": "memlab.lab",
    "Trace": "memlab.trace",
    "compare_snapshots": "memlab.snapshots",
    "explain": "memlab.explaining",
    "explain_snapshot": "memlab.snapshots",
    "fit": "memlab.fitting",
    "format_bytes": "memlab.units",
    "max_batch": "memlab.fitting",
    "measure": "memlab.run",
    "predict": "memlab.run",
    "size": "memlab.sizes",
    "sweep": "memlab.run",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'memlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


_register()
