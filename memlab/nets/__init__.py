"""The models that the notebooks train: small, plain PyTorch, one file each."""

from memlab.nets.gpt import GPT
from memlab.nets.mlp import MLP

__all__ = ["GPT", "MLP"]
