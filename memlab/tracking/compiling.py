"""Compiled code makes tensors that no mode sees, so what was given to ``torch.compile`` runs as it was written.

Only in threads that a tracker watches: beside a panel's prediction, the reader's cells compile.
"""

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from memlab.patching import Change, Patches
from memlab.tracking.internals import COMPILER, modes_of_this_thread
from memlab.tracking.storages import Storages

_jit: Any = torch.jit  # whose types lack it, and a script reads comments on types
_PLACE, _NAME = f"{COMPILER}.eval_frame", "_callback_from_stance"  # torch.compiler.set_stance is for all threads


def is_imported() -> bool:
    """Whether PyTorch's compiler is there. To import it takes seconds: it is not asked for, only looked for.

    Lost without the name: what is compiled runs compiled, and its tensors are not seen.
    """
    return hasattr(sys.modules.get(_PLACE), _NAME)


def _changes() -> Iterator[Change]:
    place = sys.modules[_PLACE]
    compiles = getattr(place, _NAME)
    is_compiling = torch.compiler.is_compiling

    def callback(given: Any) -> Any:
        return None if _is_watched() else compiles(given)

    def compiling() -> bool:
        # PyTorch's answer is the process's: optimizers would take their way for compiled code.
        if _jit.is_scripting():  # as PyTorch's own: a script leaves out the rest
            return False
        else:
            return not _is_watched() and is_compiling()

    # Of the hooks on modules that tell which one is at work.
    warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global hooks", UserWarning)
    yield place, _NAME, callback
    yield torch.compiler, "is_compiling", torch.compiler.assume_constant_result(compiling)  # for what others compile


def _is_watched() -> bool:
    return any(isinstance(mode, Storages) for mode in modes_of_this_thread())


AS_WRITTEN = Patches(_changes)  # a context, for when it is imported
