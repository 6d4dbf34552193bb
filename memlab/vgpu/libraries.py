"""Libraries that ask whether a tensor is PyTorch's fake one, to find out whether somebody traces their code.

In a prediction nobody does: the code shall go the way that it goes on a card.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack

from memlab.patching import Change, Patches, where
from memlab.vgpu.current import is_predicting

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
