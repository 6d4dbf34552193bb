"""Predicted peaks of fine-tuning beside published: python -m tests.published.finetuning. Nothing is fitted on them.

``memlab.finetuning`` is the loop of a lesson, not that of the libraries which were measured: where they do something
else, the line says what.
"""

from typing import Any, NamedTuple

from memlab.finetuning import MODELS, train
from memlab.run import Run
from memlab.trace import Trace
from memlab.vgpu.gpu import VirtualGpu


class Peak(NamedTuple):
    """A published peak of allocated bytes, and the settings of ``train`` for it."""

    name: str
    settings: dict[str, Any]
    published: int
    reason: str = ""


MISTRAL = {"sizes": MODELS["Mistral-7B-v0.3"] | {"vocabulary": 32_000}}  # v0.1
LLAMA = {"sizes": MODELS["Llama-3.1-8B"]}  # 3.0 has the same sizes
LLAMA_2 = {"sizes": MODELS["Llama-2-7B"], "checkpointing": False, "chunked_loss": False, "context": 1304}
LLAMA_13B = LLAMA_2 | {"sizes": MODELS["Llama-2-13B"]}
PACKED = {"context": 4096, "optimizer": "AdamW, foreach", "adapters": "attention"}
PLAIN = PACKED | {"chunked_loss": False}
QV = {"adapters": "queries and values", "rank": 8, "optimizer": "AdamW, foreach"}
LOGITS = "Transformers has 14 bytes a logit, this loop 12"
SCALES = "scales are quantized, too"
CASTS = "autocast, and Liger's loss makes the gradient in forward"
DROPOUT = "dropout in the adapters, padded queries, keys and values"

# foundation-model-stack/fms-acceleration at 876e2ed6, scripts/benchmarks/refs/a100_80gb.csv and a100_80gb_liger.csv:
# one A100-80GB, torch 2.4.1, sequences packed to 4,096 tokens, each layer checkpointed, adapters of rank 16 on
# attention. Lightning-AI/lit-gpt at 8641822b, tutorials/resource-tables.md: one A100-40GB, torch 2.1.0, longest sample
# 1,304 tokens, no checkpoints, rank 8 on queries and values. All are max_memory_allocated.
PUBLISHED = (
    Peak("Mistral 7B full, 4 sequences", MISTRAL | PLAIN | {"method": "full", "batch_size": 4}, 72_434_837_504),
    Peak("Mistral 7B full, 8", MISTRAL | PLAIN | {"method": "full", "batch_size": 8}, 72_435_230_720),
    Peak("Mistral 7B full, 16, Liger", MISTRAL | PACKED | {"method": "full", "batch_size": 16}, 77_144_641_024, CASTS),
    Peak("Llama 3 8B full, 4, Liger", LLAMA | PACKED | {"method": "full", "batch_size": 4}, 80_318_097_408),
    Peak("Llama 3 8B full, 8, Liger", LLAMA | PACKED | {"method": "full", "batch_size": 8}, 80_318_490_624),
    Peak("Mistral 7B LoRA, 4", MISTRAL | PLAIN | {"method": "LoRA", "batch_size": 4}, 26_704_571_904, LOGITS),
    Peak("Mistral 7B LoRA, 8", MISTRAL | PLAIN | {"method": "LoRA", "batch_size": 8}, 38_742_912_512, LOGITS),
    Peak("Llama 3 8B LoRA, 4, Liger", LLAMA | PACKED | {"method": "LoRA", "batch_size": 4}, 24_905_936_896, CASTS),
    Peak("Llama 3 8B LoRA, 8, Liger", LLAMA | PACKED | {"method": "LoRA", "batch_size": 8}, 33_567_698_944, CASTS),
    Peak("Llama 3 8B LoRA, 16, Liger", LLAMA | PACKED | {"method": "LoRA", "batch_size": 16}, 50_891_223_040, CASTS),
    Peak("Mistral 7B QLoRA, 4", MISTRAL | PLAIN | {"batch_size": 4}, 16_373_838_336, f"{LOGITS}; {SCALES}"),
    Peak("Mistral 7B QLoRA, 8", MISTRAL | PLAIN | {"batch_size": 8}, 28_412_178_944, f"{LOGITS}; {SCALES}"),
    Peak("Llama 3 8B QLoRA, 4, Liger", LLAMA | PACKED | {"batch_size": 4}, 14_411_297_792, f"{SCALES}; {CASTS}"),
    Peak("Llama 3 8B QLoRA, 16, Liger", LLAMA | PACKED | {"batch_size": 16}, 39_987_639_296, f"{SCALES}; {CASTS}"),
    Peak("Llama 2 7B LoRA, 1 of 1,304", LLAMA_2 | QV | {"method": "LoRA"}, 21_300_000_000, DROPOUT),
    Peak("Llama 2 7B LoRA, 2 of 1,304", LLAMA_2 | QV | {"method": "LoRA", "batch_size": 2}, 29_070_000_000, DROPOUT),
    Peak("Llama 2 13B LoRA, 1 of 1,304", LLAMA_13B | QV | {"method": "LoRA"}, 38_120_000_000, DROPOUT),
)


def predicted(one: Peak) -> Trace:
    """On the same card, had it room for everything."""
    device = VirtualGpu("A100-80GB", is_endless=True)
    return Run(train, one.settings, device, steps=2).complete()


def main() -> None:
    print("| fine-tuning | published | predicted | | where they differ |\n|---|--:|--:|--:|---|")
    for one in PUBLISHED:
        peak = predicted(one).peak_allocated
        off = f"{peak / one.published - 1:+.1%}"
        print(f"| {one.name} | {one.published / 1e9:.2f} GB | {peak / 1e9:.2f} GB | {off} | {one.reason} |", flush=True)


if __name__ == "__main__":
    main()
