"""Compiled loops, small. What PyTorch's CUDA build takes for them on the stand-in is in a file.

``python -m tests.cuda.compiled --write`` writes that file, ``tests/vgpu/compiled/recorded.json``.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.vgpu.compiled.loops.common import Layers, on_rows, on_text, small_gpt, text
from tests.vgpu.compiled.loops.first import FIRST, GRAPHED, GRAPHS, accumulated, counted
from tests.vgpu.compiled.loops.nets import NETS
from tests.vgpu.compiled.loops.settings import SETTINGS
from tests.vgpu.compiled.loops.techniques import TECHNIQUES

__all__ = [
    "FIRST",
    "GRAPHED",
    "GRAPHS",
    "HELD_OUT",
    "LOOPS",
    "Layers",
    "accumulated",
    "counted",
    "on_rows",
    "on_text",
    "small_gpt",
    "text",
]

LOOPS: dict[str, Callable[[Any], Iterator[torch.Tensor]]] = FIRST | SETTINGS | NETS | TECHNIQUES

# Written, and recorded on the A100-40GB, before a rule was changed for any of them. When they were predicted for the
# first time, 18 of the 21 were equal, allocated and reserved. Of "preferences" a clock decides (padding); "mobilenet
# channels last" made a rule; "gradients by a function" gave no loss, and was written and recorded anew.
HELD_OUT = NETS.keys() | TECHNIQUES.keys()
