"""Predictions beside what Mila's benchmark suite published of transformers on a real H100, L40S and H200.

``python -m tests.published.milabench_transformers`` prints them. The context of each card is the constant that its
convolutional networks were fitted with (``tests.published.milabench``), so nothing is fitted on these.
The source pins transformers 4.49.0, whose T5 takes twice the memory of version 5's: `pip install transformers==4.49.0`.
Whisper begins with convolutions, so cuDNN is asked: in the environment of `make test-cuda`, or with `memlab[cudnn]`.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import transformers
from torch import nn

from tests.published.speeds import times
from tests.published.totals import report

FILES = [Path(__file__).with_name(f"milabench_transformers_{card}.json") for card in ("h100", "h200", "l40s")]
Batch = dict[str, torch.Tensor]


def train(device: torch.device, *, network: str, batch_size: int) -> Iterator[torch.Tensor]:
    """One of the suite's runs: a network, with its precision behind a hyphen. Gradients are never set to zero there."""
    name, _, kind = network.partition("-")
    precision = kind or "tf32-fp16"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = "tf32" in precision
    half = "fp16" in precision
    build, make_batch = NETWORKS[name]
    model = build().to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    scaler = torch.amp.GradScaler(device.type, enabled=half)

    def step(batch: Batch) -> torch.Tensor:  # what the model gives, large logits, is there until its end and no longer
        with torch.autocast(device.type, torch.float16, enabled=half):
            outputs = model(**batch)
        loss: torch.Tensor = outputs.loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    while True:
        batch = make_batch(batch_size)  # the one before goes
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        loss = step(batch)  # is there until the next step's end, with what its graph still holds
        yield loss


def _bert() -> nn.Module:
    return transformers.AutoModelForMaskedLM.from_config(transformers.BertConfig())


def _t5() -> nn.Module:
    """``t5-small``."""
    config = transformers.T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)
    return transformers.AutoModelForSeq2SeqLM.from_config(config)


def _reformer() -> nn.Module:
    return transformers.AutoModelForMaskedLM.from_config(transformers.ReformerConfig(num_buckets=128))


def _whisper() -> nn.Module:
    """``whisper-tiny``."""
    sides = {"layers": 4, "attention_heads": 6, "ffn_dim": 1536}
    both = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()}
    config = transformers.WhisperConfig(d_model=384, **both)
    return transformers.AutoModelForAudioClassification.from_config(config)


def _texts(length: int) -> Callable[[int], Batch]:
    def batch(size: int) -> Batch:
        return {name: torch.zeros(size, length, dtype=torch.int64) for name in ("input_ids", "labels")}

    return batch


def _sounds(size: int) -> Batch:
    return {"input_features": torch.zeros(size, 80, 3000), "labels": torch.zeros(size, dtype=torch.int64)}


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Batch]]] = {
    "bert": (_bert, _texts(512)),
    "t5": (_t5, _texts(1024)),
    "reformer": (_reformer, _texts(4096)),
    "whisper": (_whisper, _sounds),
}


if __name__ == "__main__":
    print(f"transformers {transformers.__version__}\n")
    for file in FILES:
        report(file, train, context=json.loads(file.read_text())["context MiB"])
        print(*times(file, train), sep="\n", end="\n\n")
