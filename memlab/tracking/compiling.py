"""Code that was given to ``torch.compile`` runs as the tracker that watches it says: in a measured step as it was
written, because compiled code makes tensors that no mode sees.

Only in threads that a tracker watches, or that want all as it was written: beside a panel's prediction, the reader's
cells compile.
"""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from memlab.patching import Change, Patches
from memlab.tracking.internals import STANCE, compiler_frontend
from memlab.tracking.storages import watching

_jit: Any = torch.jit  # whose types lack it, and a script reads comments on types
_thread = threading.local()


def is_imported() -> bool:
    """Return True if PyTorch's compiler is loaded. Importing it takes seconds, so it is only looked for."""
    return hasattr(compiler_frontend(), STANCE)


def _changes() -> Iterator[Change]:
    frontend = compiler_frontend()
    compiles = getattr(frontend, STANCE)
    is_compiling = torch.compiler.is_compiling

    def callback(given: Any) -> Any:
        if getattr(_thread, "as_written", False):
            return None
        trackers = watching()
        return trackers[-1].compiler(compiles(given)) if trackers else compiles(given)

    def compiling() -> bool:
        # PyTorch's answer is the process's: optimizers would take their way for compiled code.
        if _jit.is_scripting():  # as PyTorch's own: a script leaves out the rest
            return False
        else:
            return not watching() and is_compiling()

    # Of the hooks on modules that tell which one is at work.
    warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global hooks", UserWarning)
    yield frontend, STANCE, callback
    yield torch.compiler, "is_compiling", torch.compiler.assume_constant_result(compiling)  # for what others compile


AS_WATCHED = Patches(_changes)  # a context, for when it is imported


@contextmanager
def as_written() -> Iterator[None]:
    """A context in which this thread runs as it was written what was given to the compiler."""
    with AS_WATCHED if is_imported() else nullcontext():
        _thread.as_written = True
        try:
            yield
        finally:
            _thread.as_written = False
