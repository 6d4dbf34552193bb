"""Sixty ways of fine-tuning Llama 3.2 3B with peft on a real L40S, as peft's authors measured them, and predicted.

``python -m tests.published.peft_methods`` writes ``notebooks/recorded/peft-methods.json``, in some ten minutes, where
transformers, peft and scikit-learn are installed beside memlab. ``peft_methods.json`` has what was published: each
method's configuration and its figures. The loop is that of peft's benchmark (``method_comparison/MetaMathQA``): four
texts a step, the longest first, and an empty cache before them.

How long the longest texts were is not published. Their length is fitted on one method, LoRA of rank 32, and all the
others are compared with it; so is the mean length, which decides what is left after a step.
"""

import inspect
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import PEFT_TYPE_TO_CONFIG_MAPPING, get_peft_model
from peft.optimizers import create_lorafa_optimizer

from memlab import predict
from memlab.errors import Unpredictable
from memlab.files import write_atomically
from memlab.finetuning import MODELS
from memlab.lab.recorded import folder
from tests.published.llama import config

PUBLISHED: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
FITTED = "lora rank32"
LONGEST, MEAN = 684, 220  # tokens of a text with its padding, fitted
BATCH = 4
LLAMA = config(MODELS["Llama-3.2-3B"])


def adapted(device: torch.device, method: dict[str, Any]) -> torch.nn.Module:
    """Llama 3.2 3B in bfloat16 with a method's adapters; as it is if the method has none."""
    with torch.device(device):
        model = transformers.LlamaForCausalLM._from_config(LLAMA, dtype=torch.bfloat16)
    if not method["config"]:
        return model
    kind = PEFT_TYPE_TO_CONFIG_MAPPING[method["config"]["peft_type"]]
    known = inspect.signature(kind).parameters  # peft's of today may have lost some
    settings = kind(
        **{name: value for name, value in method["config"].items() if name in known and name != "peft_type"}
    )
    settings.task_type = "CAUSAL_LM"
    return get_peft_model(model, settings, autocast_adapter_dtype=method.get("autocast_adapter_dtype", True))


def batch(length: int, device: torch.device) -> dict[str, Any]:
    """Texts of which each is one token shorter than the one before, so that there is a mask."""
    tokens, mask = torch.ones(BATCH, length, dtype=torch.long), torch.ones(BATCH, length, dtype=torch.long)
    labels = tokens.clone()
    for row in range(1, BATCH):
        mask[row, -row:] = 0
        labels[row, length - row + 1 :] = -100
    count = int(mask.sum())
    tensors = {"input_ids": tokens, "attention_mask": mask, "labels": labels}
    return {name: tensor.to(device) for name, tensor in tensors.items()} | {"num_items_in_batch": count}


def train(device: torch.device, *, method: dict[str, Any], left: list[int] | None = None) -> Iterator[torch.Tensor]:
    """Train a step of the mean length, one of the longest, and one of the mean length again.

    Args:
        device: where.
        method: as in ``peft_methods.json``.
        left: the bytes allocated after each step are added.
    """
    torch.nn.Linear(1, 1).to(device)
    model = adapted(device, method)
    if method.get("optimizer") == "lora-fa":
        optimizer = create_lorafa_optimizer(model, r=32, lora_alpha=64, lr=1e-4, weight_decay=0.1)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    if method["config"]:
        # The benchmark looks at the model without adapters first; peft trains all their weights again afterwards, also
        # those that create_lorafa_optimizer has frozen.
        with model.disable_adapter():
            pass
    model.train()
    for step, length in enumerate([MEAN, LONGEST, MEAN], 1):
        texts = batch(length, device)
        optimizer.zero_grad()
        # The next step has both until it makes its own.
        output = model(**texts)
        loss = output.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if method["config"].get("peft_type") == "ADALORA":
            model.base_model.update_and_allocate(step)
        if left is not None:
            left.append(torch.cuda.memory_allocated())
        torch.cuda.empty_cache()
        yield loss


def compared(name: str, method: dict[str, Any]) -> list[Any]:
    """A row: the name, weights trained, bytes reserved published and predicted, and the same of what a step leaves."""
    left: list[int] = []
    trace = predict(train, gpu=PUBLISHED["card"], steps=3, method=method, left=left)
    return [name, method["trained"], method["reserved"], trace.peak_reserved, method["allocated"], left[-1]]


def main() -> None:
    rows, refused = [], {}
    for name, method in PUBLISHED["methods"].items():
        try:
            row = compared(name, method)
        except (Unpredictable, KeyError) as error:  # AdaMSS looks up a cluster that the weights' values would have
            refused[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: {refused[name]}", file=sys.stderr)
            continue
        rows.append(row)
        _, trained, reserved, predicted, allocated, left = row
        print(
            f"{name:45} {trained:13,} {reserved / 1e9:6.2f} {predicted / 1e9:6.2f} GB {predicted / reserved - 1:+.1%}"
            f"  after a step {left / allocated - 1:+.2%}",
            flush=True,
        )
    lora = PUBLISHED["methods"][FITTED]
    in_half = compared(FITTED, lora | {"autocast_adapter_dtype": False})
    versions = {name: version(name) for name in ("torch", "transformers", "peft")}
    record = {
        "source": PUBLISHED["source"],
        "card": PUBLISHED["card"],
        "published": PUBLISHED["versions"],
        "versions": versions,
        "fitted": FITTED,
        "rows": rows,
        "refused": refused,
        "adapters in bfloat16": in_half,
    }
    write_atomically(folder() / "peft-methods.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
