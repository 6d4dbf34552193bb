"""All that a notebook puts on the screen: the panel with its sliders, guesses, claims, savings, challenges and tables.

``Lab`` is loaded when it is first used: what is below it needs no widgets.
"""

from typing import TYPE_CHECKING, Any

from memlab.lab.challenge import Challenge
from memlab.lab.claim import Claim, verdict
from memlab.lab.guess import Guess
from memlab.lab.key_figures import key_figure
from memlab.lab.saving import Saving
from memlab.lab.tables import categories, peaks, say, table

if TYPE_CHECKING:
    from memlab.lab.panel import Lab

__all__ = [
    "Challenge",
    "Claim",
    "Guess",
    "Lab",
    "Saving",
    "categories",
    "key_figure",
    "peaks",
    "say",
    "table",
    "verdict",
]


def __getattr__(name: str) -> Any:
    if name != "Lab":
        raise AttributeError(f"module 'memlab.lab' has no attribute {name!r}")
    from memlab.lab.panel import Lab

    return Lab
