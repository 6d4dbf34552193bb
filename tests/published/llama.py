"""The Llamas of ``memlab.nets`` as transformers has them."""

from collections.abc import Mapping
from typing import Any

from transformers import LlamaConfig


def config(sizes: Mapping[str, Any]) -> LlamaConfig:
    """Return the configuration of a tied Llama with these sizes, such as ``LLAMA_1B``."""
    return LlamaConfig(
        vocab_size=sizes["vocabulary"],
        hidden_size=sizes["width"],
        intermediate_size=sizes["hidden"],
        num_hidden_layers=sizes["depth"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
        tie_word_embeddings=True,
    )
