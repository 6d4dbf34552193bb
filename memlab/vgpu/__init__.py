"""The virtual GPU: a PyTorch device that computes nothing and accounts for every byte as a CUDA card would."""

from memlab.vgpu.cards import CARDS, Card
from memlab.vgpu.lookup import find_card

__all__ = ["CARDS", "Card", "find_card"]
