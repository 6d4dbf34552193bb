"""What a notebook puts on the screen: the panel with its sliders, claims and challenges."""

from memlab.lab.challenge import Challenge
from memlab.lab.claim import Claim, verdict
from memlab.lab.panel import Lab

__all__ = ["Challenge", "Claim", "Lab", "verdict"]
