"""Real data that is always there and needs no download: source code for the GPT, printed digits for the rest."""

from memlab.data.images import Digits, image_batches
from memlab.data.text import batches, corpus

__all__ = ["Digits", "batches", "corpus", "image_batches"]
