"""The models that the notebooks train: small, plain PyTorch, one file each."""

from memlab.nets.gpt import GPT
from memlab.nets.mlp import MLP
from memlab.nets.resnet import ResNet
from memlab.nets.vit import ViT

__all__ = ["GPT", "MLP", "ResNet", "ViT"]
