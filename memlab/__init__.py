"""memlab: measure, predict and teach the memory of neural network training.

The names below are loaded when they are first used, so ``import memlab`` takes no time and no torch.
"""

from importlib import import_module

_HOMES = {
    "Challenge": "memlab.lab",
    "Claim": "memlab.lab",
    "Guess": "memlab.lab",
    "Lab": "memlab.lab",
    "MemlabError": "memlab.errors",
    "Saving": "memlab.lab",
    "Trace": "memlab.trace",
    "format_bytes": "memlab.units",
    "measure": "memlab.run",
    "predict": "memlab.run",
    "size": "memlab.sizes",
    "sweep": "memlab.run",
}
__all__ = list(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'memlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
