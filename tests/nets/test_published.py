"""A name that people know means that model, to the weight."""

import pytest
import torch

from memlab.nets import (
    GPT,
    GPT2_LARGE,
    GPT2_MEDIUM,
    GPT2_SMALL,
    GPT2_XL,
    LLAMA_1B,
    LLAMA_8B,
    RESNET_50,
    VIT_B_16,
    Llama,
    ResNet,
    ViT,
)

# As the configurations and checkpoints on Hugging Face have them: openai-community/gpt2 and gpt2-medium,
# meta-llama/Llama-3.2-1B and Llama-3.1-8B, microsoft/resnet-50, google/vit-base-patch16-224.
WEIGHTS = [
    pytest.param(GPT, GPT2_SMALL, 124_439_808, id="GPT-2 small"),
    pytest.param(GPT, GPT2_MEDIUM, 354_823_168, id="GPT-2 medium"),
    pytest.param(GPT, GPT2_LARGE, 774_030_080, id="GPT-2 large"),
    pytest.param(GPT, GPT2_XL, 1_557_611_200, id="GPT-2 XL"),
    pytest.param(Llama, LLAMA_1B, 1_235_814_400, id="Llama 1B"),
    pytest.param(Llama, LLAMA_8B, 8_030_261_248, id="Llama 8B"),
    pytest.param(ResNet, RESNET_50, 25_557_032, id="ResNet-50"),
    pytest.param(ViT, VIT_B_16, 86_567_656, id="ViT-B/16"),
]


@pytest.mark.parametrize(("kind", "size", "weights"), WEIGHTS)
def test_it_has_the_published_number_of_weights(kind, size, weights):
    with torch.device("meta"):
        model = kind(**size)
    assert sum(weight.numel() for weight in model.parameters()) == weights
