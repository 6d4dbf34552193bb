"""``fit``: the settings that fit on a card. The folder is not called ``fit``, for ``memlab.fit`` is the function."""

from memlab.fitting.finding import fit, max_batch
from memlab.fitting.result import Candidate, Fit, Refused

__all__ = ["Candidate", "Fit", "Refused", "fit", "max_batch"]
