"""Libraries that need a word of their own.

Some ask whether a tensor is PyTorch's fake one, to find out whether somebody traces their code. In a prediction nobody
does: the code shall go the way that it goes on a card. Others keep tensors for good, beside the loop.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from memlab.patching import Change, Patches, where
from memlab.vgpu.current import is_predicting

BITSANDBYTES = "bitsandbytes.functional"  # its name2qmap: the numbers that bits stand for, on the card
TRANSFORMERS = "transformers.utils.import_utils"  # its masks are larger where code is traced (masking_utils.py)


def _changes() -> Iterator[Change]:
    module = sys.modules[TRANSFORMERS]
    if hasattr(module, "is_fake_tensor"):
        yield module, "is_fake_tensor", where(is_predicting, lambda tensor: False, module.is_fake_tensor)


_PATCHES = Patches(_changes)


def run_untraced(until: ExitStack) -> bool:
    """Let the libraries that have been imported run so until then; whether there are any."""
    if TRANSFORMERS not in sys.modules:
        return False
    until.enter_context(_PATCHES)
    return True


def keep_apart(until: ExitStack) -> None:
    """Let what libraries keep be a prediction's own until then: a real loop would take what is left of it."""
    before = dict(_kept())
    _kept().clear()

    def put_back() -> None:
        _kept().clear()
        _kept().update(before)

    until.callback(put_back)


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = getattr(sys.modules.get(BITSANDBYTES), "name2qmap", {})
    return kept
