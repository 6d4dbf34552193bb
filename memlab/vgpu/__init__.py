"""The virtual GPU: a PyTorch device that computes nothing and accounts for every byte as a CUDA card would."""

from memlab.vgpu.cards import CARDS, Card, find_card
from memlab.vgpu.gpu import VirtualGpu

__all__ = ["CARDS", "Card", "VirtualGpu", "find_card"]
