"""DeepSpeed in a prediction: its engine finds the card and the ranks, and forgets them afterwards.

It asks once for each process which accelerator there is and which process groups there are, and keeps the answers in
its modules (asked of DeepSpeed 0.19.8). Outside of a prediction this process is one of no group.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CHOICE = "DS_ACCELERATOR"  # the environment variable that decides, where it is set
_ACCELERATOR = "deepspeed.accelerator.real_accelerator"
_COMMUNICATION = "deepspeed.comm.comm"
_GROUPS = "deepspeed.utils.groups"


@contextmanager
def deepspeed_on_the_card() -> Iterator[None]:
    """A context in which DeepSpeed, imported before or by the loop, takes the virtual GPU for its accelerator."""
    choice = os.environ.get(_CHOICE)
    accelerator = getattr(sys.modules.get(_ACCELERATOR), "ds_accelerator", None)
    os.environ[_CHOICE] = "cuda"
    _keep(_ACCELERATOR, "ds_accelerator", None)
    try:
        yield
    finally:
        os.environ.pop(_CHOICE)
        if choice is not None:
            os.environ[_CHOICE] = choice
        _keep(_ACCELERATOR, "ds_accelerator", accelerator)
        _keep(_COMMUNICATION, "cdb", None)
        if _GROUPS in sys.modules:
            importlib.reload(sys.modules[_GROUPS])


def _keep(module: str, name: str, value: Any) -> None:
    if module in sys.modules:
        setattr(sys.modules[module], name, value)
