"""Predicted scaling beside published: python -m tests.published.scaling. Nothing is fitted on it.

How many times the samples a second of one card several have, each with a batch as large; DistributedDataParallel.
"""

from typing import NamedTuple

from memlab.run import Run
from memlab.vgpu.gpu import VirtualGpu
from tests.published.steps import train

BERT = {"net": "bert", "size": "large", "tokens": 384, "masked": None, "optimizer": "fused"}
RESNET = {"net": "network", "network": "resnet50", "optimizer": "sgd"}


PRETRAINING = {"net": "bert", "size": "large", "tokens": 128, "masked": 20, "optimizer": "none"}


class Scaled(NamedTuple):
    """A published factor: of so many cards, over those (``of``) that the source compares with."""

    card: str
    name: str
    settings: dict
    ranks: int
    of: int
    factor: float


# NVIDIA/DeepLearningExamples: PyTorch/LanguageModeling/BERT/README.md (21.11), fine-tuning on SQuAD, and pretraining on
# one machine, whose cards reduce gradients every 32 batches (that costs nothing), and on 32, which do so every batch;
# PyTorch/Classification/ConvNets/resnet50v1.5/README.md (21.03).
PUBLISHED = (
    Scaled("A100-80GB", "BERT-large, TF32, batch 32", BERT | {"batch_size": 32, "precision": "tf32"}, 8, 1, 7.63),
    Scaled("A100-80GB", "BERT-large, float16, batch 32", BERT | {"batch_size": 32, "precision": "fp16"}, 8, 1, 7.66),
    Scaled("V100", "BERT-large, float32, batch 8", BERT | {"batch_size": 8, "precision": "fp32"}, 8, 1, 7.12),
    Scaled("V100", "BERT-large, float16, batch 16", BERT | {"batch_size": 16, "precision": "fp16"}, 8, 1, 7.34),
    Scaled("A100-80GB", "ResNet-50, TF32, batch 256", RESNET | {"batch_size": 256, "precision": "tf32"}, 8, 1, 7.72),
    Scaled("A100-80GB", "pretraining, float16", PRETRAINING | {"batch_size": 256, "precision": "fp16"}, 256, 8, 30.37),
)


def likely(one: Scaled, ranks: int) -> float:
    """Predicted seconds a step."""
    # Some of the cards had twice the memory of those that memlab knows.
    device = VirtualGpu(one.card, world_size=ranks, is_endless=True)
    return Run(train, one.settings, device, steps=2).complete().likely_seconds


def main() -> None:
    print("| card | step | cards | published | predicted | |\n|---|---|--:|--:|--:|--:|")
    for one in PUBLISHED:
        factor = one.ranks / one.of * likely(one, 1) / likely(one, one.ranks)
        off = factor / one.factor - 1
        print(f"| {one.card} | {one.name} | {one.ranks} | {one.factor} | {factor:.2f} | {off:+.0%} |", flush=True)


if __name__ == "__main__":
    main()
