"""The models that the notebooks train, plain PyTorch, one file each; and the sizes of those known by name."""

from memlab.nets.gpt import GPT
from memlab.nets.llama import Llama
from memlab.nets.mlp import MLP
from memlab.nets.published import GPT2_LARGE, GPT2_MEDIUM, GPT2_SMALL, GPT2_XL, LLAMA_1B, LLAMA_8B, RESNET_50, VIT_B_16
from memlab.nets.resnet import ResNet
from memlab.nets.vit import ViT

__all__ = [
    "GPT",
    "GPT2_LARGE",
    "GPT2_MEDIUM",
    "GPT2_SMALL",
    "GPT2_XL",
    "LLAMA_1B",
    "LLAMA_8B",
    "MLP",
    "RESNET_50",
    "VIT_B_16",
    "Llama",
    "ResNet",
    "ViT",
]
