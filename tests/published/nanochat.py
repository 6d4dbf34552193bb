"""nanochat's speedrun (561 million weights, compiled, eight H100s) as its own reports have it, and predicted.

``python -m tests.published.nanochat FOLDER`` predicts it in two minutes; FOLDER has karpathy/nanochat at c6b7ab74. The
loop is that of its ``scripts/base_train.py``, with its network and its optimizers: two batches of the evaluation before
the first step, then steps. Six reports, among them royam0820/nanochat-speedrun-001, ``report.md``, say "Peak memory
usage: 75422.02MiB" (torch 2.8).
"""

import os
import sys
from collections.abc import Iterator

import torch

from memlab import predict

PUBLISHED = 75_422.02  # MiB allocated at most
DEPTH, BATCH, TOKENS, VOCABULARY = 20, 32, 2048, 65_536


def batches(device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Tokens and targets, as nanochat's loader moves them."""
    while True:
        text = torch.ones(BATCH * TOKENS + 1, dtype=torch.int64).pin_memory()
        tokens, targets = text[:-1].to(torch.int32).view(BATCH, TOKENS), text[1:].view(BATCH, TOKENS)
        yield tokens.to(device, non_blocking=True), targets.to(device, non_blocking=True)


def train(device: torch.device) -> Iterator[torch.Tensor]:
    """Evaluate on two batches, then train, a step of one batch on each rank."""
    from nanochat.gpt import GPT, GPTConfig

    width = 64 * DEPTH
    heads = {"n_head": width // 128, "n_kv_head": width // 128}
    with torch.device("meta"):
        config = GPTConfig(sequence_len=TOKENS, vocab_size=VOCABULARY, n_layer=DEPTH, n_embd=width, **heads)
        model = GPT(config)
    model.to_empty(device=device)
    model.init_weights()
    lengths = torch.ones(VOCABULARY, dtype=torch.int64, device=device)  # of the tokens, in bytes
    compiled = torch.compile(model, dynamic=False)
    optimizers = model.setup_optimizers(unembedding_lr=0.004, embedding_lr=0.2, matrix_lr=0.02, weight_decay=0.0)
    texts = batches(device)
    tokens, targets = next(texts)
    half = torch.autocast(device.type, torch.bfloat16)
    compiled.eval()
    with half, torch.no_grad():
        for _, (some, goals) in zip(range(2), batches(device), strict=False):
            losses = compiled(some, goals, loss_reduction="none").view(-1)
            counts = lengths[goals.view(-1)]
            (losses * (counts > 0)).sum() / counts.sum()
    compiled.train()
    while True:
        with half:
            loss = compiled(tokens, targets)
        told = loss.detach()
        loss.backward()
        tokens, targets = next(texts)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        compiled.zero_grad(set_to_none=True)
        yield told


def main(folder: str) -> None:
    sys.path.insert(0, folder)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # as base_train.py does
    trace = predict(train, gpu="H100", world_size=8, steps=2)
    peak = trace.peak_allocated / 2**20
    print(f"published {PUBLISHED:,.0f} MiB, predicted {peak:,.0f}: {peak / PUBLISHED - 1:+.2%}", *trace.notes, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
