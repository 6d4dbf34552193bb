"""torchtitan's published memory of Llama 3.1 on many H100s, beside what notebook 22's loop is predicted to take.

``python -m tests.published.long_and_wide`` writes ``notebooks/recorded/long-and-wide.json``, in some minutes. Nothing
is fitted: what torchtitan does and this loop does not (torch.compile, Float8, keys and values gathered at once instead
of in a ring) stays a difference.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from memlab import predict
from memlab.files import write_atomically
from memlab.lab.recorded import folder
from memlab.nets import LLAMA_8B, Llama

sys.path.append(str(Path(__file__).parents[2] / "notebooks"))  # where the loops of several ranks are
from ranks import long_and_wide

SOURCE = "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md"
LLAMA_70B = LLAMA_8B | {"depth": 80, "width": 8192, "heads": 64, "hidden": 28_672}
GPU = "H200"  # as an H100 with more memory: theirs had 95 GiB
SELECTIVE = {"checkpoints": False, "selective": True, "tokens": 8192, "batch_per_rank": 2}
EIGHT = "8B, FSDP {} x CP {}, full checkpointing"
# What is published: name, ranks, settings, GiB reserved at most.
CASES: list[tuple[str, int, dict[str, Any], float]] = [
    (EIGHT.format(8, 1), 8, {"mesh": "data alone", "tokens": 32_768}, 83.9),
    (EIGHT.format(4, 2), 8, {"mesh": "context 2", "tokens": 65_536}, 84.2),
    (EIGHT.format(2, 4), 8, {"mesh": "context 4", "tokens": 131_072}, 84.0),
    (EIGHT.format(1, 8), 8, {"mesh": "context 8", "tokens": 262_144}, 84.5),
    ("8B, FSDP 8, batch 2, selective", 8, {"mesh": "data alone", **SELECTIVE}, 82.4),
    ("8B, FSDP 128, batch 2, selective", 128, {"mesh": "data alone", **SELECTIVE}, 67.0),
    (
        "70B, FSDP 32 x TP 8, batch 16, full",
        256,
        {"mesh": "tensor 8", "tokens": 8192, "batch_per_rank": 16, "sizes": LLAMA_70B},
        71.9,
    ),
]


class AllAtOnce(long_and_wide.Loss):
    """All logits, in float32, as torchtitan's loss of 2024 has them."""

    def forward(self, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy of ``(batch, tokens, width)`` and ``(batch, tokens)``."""
        return cross_entropy(self.head(features).flatten(0, 1).float(), targets.flatten())


def every_second(counts: dict[bool, int], context: Any, operator: Any, *args: Any, **named: Any) -> CheckpointPolicy:
    """torchtitan's policy "op": attention is kept, and every second matrix product."""
    aten = torch.ops.aten
    if operator == aten.mm.default:
        counts[context.is_recompute] = counts.get(context.is_recompute, 0) + 1
        if counts[context.is_recompute] % 2:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE
    kept = aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default
    return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE


class Selective(long_and_wide.Long):
    """Checkpointed operator by operator."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        for block in self.blocks:
            context = lambda: create_selective_checkpoint_contexts(partial(every_second, {}))  # noqa: E731
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=context)


def reserved(ranks: int, *, selective: bool = False, sizes: dict[str, Any] = LLAMA_8B, **settings: Any) -> float:
    """GiB that rank 0 of so many is predicted to reserve."""
    assert issubclass(long_and_wide.Long, Llama)
    model = Selective if selective else long_and_wide.Long
    with patch.object(long_and_wide, "Loss", AllAtOnce), patch.object(long_and_wide, "Long", model):
        where = {"gpu": GPU, "world_size": ranks, "steps": 2, "start": "meta"}
        trace = predict(long_and_wide.train, sizes=sizes, **where, **settings)
    assert trace.oom is None, trace.sentence
    assert trace.peak_reserved is not None
    print(settings, trace.sentence, trace.peak_reserved / 2**30, flush=True)
    return trace.peak_reserved / 2**30


if __name__ == "__main__":
    rows = [
        [name, settings["tokens"], told, round(reserved(ranks, **settings), 1)] for name, ranks, settings, told in CASES
    ]
    record = {"source": SOURCE, "torch": torch.__version__, "rows": rows}
    write_atomically(folder() / "long-and-wide.json", json.dumps(record, indent=1).encode() + b"\n")
