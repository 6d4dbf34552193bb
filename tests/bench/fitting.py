"""``python -m tests.bench.fitting``: ``fit`` against trying every combination (minutes, left out by --quick)."""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import torch

from memlab import fit, predict
from memlab.data import batches
from memlab.fitting.finding import samples_of
from memlab.nets import GPT, ViT
from memlab.techniques.lora import add_lora

MEDIUM = {"depth": 24, "width": 1024, "heads": 16}
XL = {"depth": 48, "width": 1600, "heads": 25}
LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}


def steps(model, device, precision, optimizer, batch: Callable[[], tuple]) -> Iterator[torch.Tensor]:
    """Plain training steps."""
    while True:
        with torch.autocast(device.type, torch.float16, enabled=precision == "amp"):
            loss = model(*(tensor.to(device) for tensor in batch()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def train_gpt(device, *, batch_size, precision="fp32", checkpoint_every=0, shape=MEDIUM):
    model = GPT(context=1024, vocabulary=50257, checkpoint_every=checkpoint_every, **shape).to(device)
    data = batches(batch_size, 1024)
    yield from steps(model, device, precision, torch.optim.AdamW(model.parameters()), lambda: next(data))


def train_vit(device, *, batch_size, precision="fp32", checkpoint_every=0, optimizer="AdamW"):
    model = ViT(**MEDIUM, classes=1000, checkpoint_every=checkpoint_every).to(device)
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)
    size = (batch_size, 3, 224, 224)
    batch = lambda: (torch.empty(size), torch.zeros(batch_size, dtype=torch.int64))  # noqa: E731
    yield from steps(model, device, precision, made, batch)


def train_lora(device, *, batch_size, checkpointing=False, rank=16):
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**LLAMA)).to(device, torch.bfloat16)
    add_lora(model, ["q_proj", "k_proj", "v_proj", "o_proj"], rank=rank)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    while True:
        ids = torch.zeros(batch_size, 512, dtype=torch.int64).to(device)
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


TWO = {"precision": ["fp32", "amp"], "checkpoint_every": [0, 1]}
CASES = {
    "GPT-2 medium on a T4": (train_gpt, "T4", {"batch_size": (1, 16)} | TWO),
    "LoRA in a Llama of 8 billion on an A10G": (
        train_lora,
        "A10G",
        {"batch_size": (1, 16), "checkpointing": bool, "rank": [16, 64]},
    ),
    "ViT-L/16 on a T4": (train_vit, "T4", {"batch_size": (1, 16), "optimizer": ["AdamW", "SGD"]} | TWO),
    "GPT-2 XL on a T4": (train_gpt, "T4", {"batch_size": (1, 8), "shape": XL} | TWO),
}


def best_of_all(train, gpu, choices) -> dict | None:
    """The fastest combination that fits, by trying each."""
    lists = {name: _values(given) for name, given in choices.items()}
    found = []
    for values in product(*lists.values()):
        settings = dict(zip(lists, values, strict=True))
        trace = predict(train, gpu=gpu, **settings)
        if not trace.oom:
            found.append((trace.likely_seconds / samples_of(settings), trace.peak_reserved, settings))
    return min(found, key=lambda one: one[:2])[2] if found else None


def _values(given) -> list:
    if given is bool:
        return [False, True]
    return (
        list(range(given[0], given[1] + 1))
        if isinstance(given, tuple)
        else given
        if isinstance(given, list)
        else [given]
    )


def figures() -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure)."""
    for name, (train, gpu, choices) in CASES.items():
        begun = time.process_time()
        found = fit(train, gpu=gpu, **choices)
        seconds = time.process_time() - begun
        yield (
            f"fit: {name}",
            "60 s, a third",
            f"{seconds:.0f} s of CPU, {found.tried} of {found.combinations}: {found.sentence}",
        )
        if "--quick" not in sys.argv:
            begun, best = time.process_time(), best_of_all(train, gpu, choices)
            same = (found.best and {name: found.best.settings[name] for name in found.best.settings}) == (
                best and {name: value for name, value in best.items() if name in found.best.settings}
            )
            yield "  trying all", "the same", f"{'the same' if same else best}, {time.process_time() - begun:.0f} s"


def main() -> None:
    """Print, a row as soon as it is known."""
    for what, reach, figure in figures():
        print(f"{what:<45} {reach:<14} {figure}", flush=True)


if __name__ == "__main__":
    main()
