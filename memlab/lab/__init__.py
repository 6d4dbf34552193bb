"""What a notebook puts on the screen: the panel with its sliders, guesses, claims, savings and challenges."""

from memlab.lab.challenge import Challenge
from memlab.lab.claim import Claim, verdict
from memlab.lab.guess import Guess
from memlab.lab.panel import Lab
from memlab.lab.saving import Saving

__all__ = ["Challenge", "Claim", "Guess", "Lab", "Saving", "verdict"]
