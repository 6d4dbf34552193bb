"""The sizes of models that people fine-tune, as arguments of :class:`memlab.nets.Llama`, by the checkpoint's name."""

from difflib import get_close_matches
from typing import Any

import torch

from memlab.errors import BadValue
from memlab.nets import LLAMA_1B, LLAMA_8B, Llama

# Each as `config.json` of the checkpoint on Hugging Face has it; tests/finetuning counts the weights. Llama 3.2 and 3.1
# are meta-llama's, Llama 2 too, SmolLM2 HuggingFaceTB's, TinyLlama TinyLlama's, Mistral mistralai's, Qwen2.5 Qwen's.
_SMOLLM = {"vocabulary": 49_152, "tied": True}
_LLAMA_2 = {"vocabulary": 32_000, "tied": False}
_QWEN = {"vocabulary": 151_936, "tied": True, "bias": True}
_QWEN_LARGE = {"vocabulary": 152_064, "tied": False, "bias": True}
MODELS: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": _SMOLLM | {"depth": 30, "width": 576, "heads": 9, "kv_heads": 3, "hidden": 1536},
    "SmolLM2-360M": _SMOLLM | {"depth": 32, "width": 960, "heads": 15, "kv_heads": 5, "hidden": 2560},
    "Qwen2.5-0.5B": _QWEN | {"depth": 24, "width": 896, "heads": 14, "kv_heads": 2, "hidden": 4864},
    "TinyLlama-1.1B": _LLAMA_2 | {"depth": 22, "width": 2048, "heads": 32, "kv_heads": 4, "hidden": 5632},
    "Llama-3.2-1B": LLAMA_1B,
    "Qwen2.5-1.5B": _QWEN | {"depth": 28, "width": 1536, "heads": 12, "kv_heads": 2, "hidden": 8960},
    "SmolLM2-1.7B": _SMOLLM | {"depth": 24, "width": 2048, "heads": 32, "kv_heads": 32, "hidden": 8192},
    "Qwen2.5-3B": _QWEN | {"depth": 36, "width": 2048, "heads": 16, "kv_heads": 2, "hidden": 11_008},
    "Llama-3.2-3B": LLAMA_1B | {"depth": 28, "width": 3072, "heads": 24},
    "Llama-2-7B": _LLAMA_2 | {"depth": 32, "width": 4096, "heads": 32, "kv_heads": 32, "hidden": 11_008},
    "Mistral-7B-v0.3": LLAMA_8B | {"vocabulary": 32_768},
    "Qwen2.5-7B": _QWEN_LARGE | {"depth": 28, "width": 3584, "heads": 28, "kv_heads": 4, "hidden": 18_944},
    "Llama-3.1-8B": LLAMA_8B,
    "Llama-2-13B": _LLAMA_2 | {"depth": 40, "width": 5120, "heads": 40, "kv_heads": 40, "hidden": 13_824},
    "Qwen2.5-14B": _QWEN_LARGE | {"depth": 48, "width": 5120, "heads": 40, "kv_heads": 8, "hidden": 13_824},
    "Qwen2.5-32B": _QWEN_LARGE | {"depth": 64, "width": 5120, "heads": 40, "kv_heads": 8, "hidden": 27_648},
    "Llama-3.1-70B": LLAMA_8B | {"depth": 80, "width": 8192, "heads": 64, "hidden": 28_672},
}


def count_weights(name: str) -> int:
    """Return the number of weights of a model of ``MODELS``, a tied one counted once."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in Llama(**MODELS[name]).parameters())


def find_model(name: str) -> str:
    """The name as ``MODELS`` has it; upper and lower case are the same, and an owner before a slash is left out.

    Raises:
        BadValue: no such model is known.
    """
    asked = name.rpartition("/")[2].lower().replace("-instruct", "")
    known = {model.lower(): model for model in MODELS}
    if asked not in known:
        close = [known[match] for match in get_close_matches(asked, known, n=3, cutoff=0.5)]
        likely = f"The closest: {', '.join(close)}. " if close else ""
        raise BadValue(
            f"{name!r} is neither an existing file nor a model that memlab knows. {likely}All: {', '.join(MODELS)}."
        )
    return known[asked]
