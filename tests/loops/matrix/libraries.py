"""Models of the libraries that people use, with random weights."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from tests.loops.case import Case
from tests.loops.matrix.training import dtype_of, train

VOCABULARY = 2000
# A model's class and the settings of a small one, by the names that its own configuration has for them.
_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = _DECODER | {"num_key_value_heads": 2}
_ENCODER = {key: size for key, size in _DECODER.items() if not key.endswith("token_id")}
_IMAGES = {"hidden_size": 192, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 3}
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        {"vocab_size": VOCABULARY, "n_embd": 256, "n_layer": 2, "n_head": 8, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "bert": ("BertForMaskedLM", _ENCODER),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": VOCABULARY, "dim": 256, "hidden_dim": 512, "n_layers": 2, "n_heads": 8},
    ),
    "llama": ("LlamaForCausalLM", _GROUPED),
    "mistral": ("MistralForCausalLM", _GROUPED | {"sliding_window": 64}),
    "mixtral": ("MixtralForCausalLM", _GROUPED | {"num_local_experts": 4}),
    "qwen2": ("Qwen2ForCausalLM", _GROUPED),
    "qwen3": ("Qwen3ForCausalLM", _GROUPED | {"head_dim": 32}),
    "gemma": ("GemmaForCausalLM", _GROUPED | {"head_dim": 64}),
    "phi3": ("Phi3ForCausalLM", _GROUPED),
    "neox": ("GPTNeoXForCausalLM", _ENCODER),
    "opt": (
        "OPTForCausalLM",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 256,
            "ffn_dim": 512,
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "word_embed_proj_dim": 256,
        },
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 256,
            "d_ff": 512,
            "d_kv": 32,
            "num_layers": 2,
            "num_heads": 8,
            "decoder_start_token_id": 0,
        },
    ),
    "bart": (
        "BartForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 256,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
        },
    ),
    "vit": ("ViTForImageClassification", _IMAGES),
    "dinov2": ("Dinov2ForImageClassification", {"hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3}),
    "whisper": (
        "WhisperForConditionalGeneration",
        {
            "vocab_size": VOCABULARY,
            "d_model": 192,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 3,
            "decoder_attention_heads": 3,
            "encoder_ffn_dim": 384,
            "decoder_ffn_dim": 384,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 3,
            "begin_suppress_tokens": None,
            "suppress_tokens": None,
        },
    ),
}


def cases() -> Iterator[Case]:
    """Models of transformers and timm, where those are installed."""
    for name in ("gpt2", "bert", "llama"):
        for precision in ("fp32", "bf16"):
            yield Case(transformers_model, {"name": name, "precision": precision}, needs="transformers")
    for name in SMALL:
        for precision in ("fp32", "bf16"):
            yield Case(small_model, {"name": name, "precision": precision}, needs="transformers")
    for name in ("gpt2", "llama"):
        for settings in (
            {"checkpointed": True},
            {"attention": "eager"},
            {"precision": "pure bf16"},
            {"precision": "fp16"},
        ):
            yield Case(small_model, {"name": name, "precision": "bf16"} | settings, needs="transformers")
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


def small_model(
    device: torch.device,
    *,
    name: str = "gpt2",
    precision: str = "fp32",
    batch_size: int = 4,
    tokens: int = 128,
    attention: str = "sdpa",
    checkpointed: bool = False,
) -> Iterator[torch.Tensor]:
    """A model of the transformers library of two layers, with random weights and its own dropout."""
    import transformers

    class_name, settings = SMALL[name]
    class_ = getattr(transformers, class_name)
    model = class_(class_.config_class(**settings, attn_implementation=attention)).train()
    if checkpointed:
        model.activation_checkpointing_enable()
    inputs = _inputs(model, batch_size, tokens)

    def forward() -> torch.Tensor:
        return model(**{key: tensor.to(device) for key, tensor in inputs(dtype_of(model)).items()}).loss

    yield from train(model, forward, device, precision, "AdamW")


def _inputs(model: Any, batch_size: int, tokens: int) -> Callable[[torch.dtype], dict[str, torch.Tensor]]:
    """Return the function that makes a batch for such a model: images, sounds or tokens."""
    configuration = model.config

    def images(dtype: torch.dtype) -> dict[str, torch.Tensor]:
        size = configuration.image_size
        pixels = torch.randn(batch_size, 3, size, size, dtype=dtype)
        return {"pixel_values": pixels, "labels": torch.zeros(batch_size, dtype=torch.int64)}

    def sounds(dtype: torch.dtype) -> dict[str, torch.Tensor]:
        frames = torch.randn(
            batch_size, configuration.num_mel_bins, 2 * configuration.max_source_positions, dtype=dtype
        )
        return {"input_features": frames, "labels": torch.randint(4, VOCABULARY, (batch_size, tokens))}

    def texts(dtype: torch.dtype) -> dict[str, torch.Tensor]:
        ids = torch.randint(4, VOCABULARY, (batch_size, tokens))
        return {"input_ids": ids, "labels": ids}  # no mask of ones: whether it masks anything is asked of the numbers

    return {"pixel_values": images, "input_features": sounds}.get(model.main_input_name, texts)


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
