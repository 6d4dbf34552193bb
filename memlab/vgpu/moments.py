"""The moments of a call that is written down, so that it can be played again (``repeats.py``)."""

from dataclasses import dataclass
from typing import Any

import torch

from memlab.categories import Category, Phase

# The kind of the moment, and to which storage or block it happens, or of which operator.
Moment = tuple[Any, ...]
BEGIN, WORK, RESULTS, EXPLAIN = "an operator begins", "is counted", "gives its results", "is over"
BORN, FREED, TAKE, GIVE, LEAVE = "born", "freed", "a block is taken", "given back", "backward has done with an argument"


@dataclass(frozen=True)
class Born:
    """A storage that is born in a call: as its record, with the category if it is over when backward is."""

    nbytes: int
    shape: tuple[int, ...]
    dtype: torch.dtype | None
    phase: Phase
    recomputed: bool
    category: Category | None
