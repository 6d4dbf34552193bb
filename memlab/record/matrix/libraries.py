"""Models of the libraries that people use, with random weights."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from memlab.record.case import Case
from memlab.record.matrix.training import train


def cases() -> Iterator[Case]:
    """Models of transformers and timm, where those are installed."""
    for name in ("gpt2", "bert", "llama"):
        for precision in ("fp32", "bf16"):
            yield Case(transformers_model, {"name": name, "precision": precision}, needs="transformers")
    for name in ("resnet50", "vit_base_patch16_224", "efficientnet_b0"):
        yield Case(timm_model, {"name": name}, needs="timm")


def transformers_model(
    device: torch.device, *, name: str = "gpt2", batch_size: int = 4, tokens: int = 512, precision: str = "bf16"
) -> Iterator[torch.Tensor]:
    """A model of the transformers library, with random weights from its default configuration."""
    import transformers

    classes = {
        "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config()),
        "bert": (transformers.BertForMaskedLM, transformers.BertConfig()),
        "llama": (
            transformers.LlamaForCausalLM,
            transformers.LlamaConfig(
                hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16
            ),
        ),
    }
    class_, configuration = classes[name]
    model = class_(configuration).train()

    def forward() -> torch.Tensor:
        ids = torch.randint(1000, (batch_size, tokens)).to(device)
        return model(input_ids=ids, labels=ids).loss

    yield from train(model, forward, device, precision, "AdamW")


def timm_model(
    device: torch.device, *, name: str = "resnet50", batch_size: int = 32, precision: str = "bf16"
) -> Iterator[torch.Tensor]:
    """A model of the timm library, with random weights."""
    import timm

    model = timm.create_model(name, num_classes=10).train()

    def forward() -> torch.Tensor:
        images, labels = torch.randn(batch_size, 3, 224, 224).to(device), torch.zeros(batch_size, dtype=torch.int64)
        return F.cross_entropy(model(images), labels.to(device))

    yield from train(model, forward, device, precision, "SGD momentum")
