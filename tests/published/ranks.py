"""One rank of several, predicted beside published peaks of real GPUs: python -m tests.published.ranks

The first loop is written out here. The others are their authors' own code, which is not kept here: give the folders of
checkouts, ``--litgpt`` of Lightning-AI/litgpt (tag v0.3.1), ``--torchtitan`` of pytorch/torchtitan (commit 9dec370; it
needs a PyTorch with Triton). The attention kernel, which no source names, is the one that PyTorch took in 2024.
"""

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from memlab.run import predict
from memlab.units import GIB, MIB

FILE = Path(__file__).with_name("ranks.json")
UNITS = {"MiB": MIB, "GB": 10**9, "GiB": GIB}
VOCABULARY, WIDTH, HEADS, DEPTH, TOKENS = 33278, 1024, 64, 32, 35  # of Lightning's demo, with WikiText-2
LLAMA3_VOCABULARY = 128256


class Demo(nn.Module):
    """The model of Lightning's guide to FSDP: ``nn.Transformer`` with 1 billion parameters."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.transformer = nn.Transformer(WIDTH, HEADS, DEPTH, DEPTH, 4 * WIDTH, dropout=0.2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.positions = None

    def forward(self, tokens, targets):
        if self.positions is None:
            self.positions = torch.zeros(5000, WIDTH, device=tokens.device)  # made at first use, and no buffer
        mask = torch.full((TOKENS, TOKENS), -math.inf, device=tokens.device).triu(1)
        ends = [F.dropout(self.embedding(ids) * math.sqrt(WIDTH), 0.2) for ids in (tokens, targets)]
        return self.head(self.transformer(*ends, tgt_mask=mask)).log_softmax(-1).flatten(0, 1)


def demo(device: torch.device, *, strategy: str) -> Iterator[torch.Tensor]:
    """As Lightning's Trainer runs it: gradients are set to None between forward and backward."""
    model: nn.Module = Demo().to(device)
    if strategy == "DDP":
        model = DistributedDataParallel(model)
    else:
        policy = ModuleWrapPolicy({nn.TransformerEncoderLayer, nn.TransformerDecoderLayer})
        options: dict[str, Any] = {"sharding_strategy": ShardingStrategy[strategy], "use_orig_params": True}
        model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=device, **options)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        tokens, targets = torch.zeros(2, 1, TOKENS, dtype=torch.long).to(device)
        loss = F.nll_loss(model(tokens, targets), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


def litgpt(device: torch.device) -> Iterator[torch.Tensor]:
    """lightning-thunder's ``benchmark_litgpt.py --model_name Llama-2-7b-hf --distributed_mode fsdp2``, eager, zero2."""
    from litgpt.model import GPT, Block, Config

    config = Config.from_name("Llama-2-7b-hf")
    with torch.device("meta"):
        model = GPT(config).to(torch.bfloat16)
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for module in (*(module for module in model.modules() if isinstance(module, Block)), model):
        fully_shard(module, reshard_after_forward=False, mp_policy=half)
    model.to_empty(device=device).apply(model._init_weights)
    model.max_seq_length = config.block_size
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    while True:
        tokens, targets = torch.zeros(2, 1, config.block_size, dtype=torch.long).to(device)
        logits = model(tokens)
        logits = logits.reshape(-1, logits.size(-1))
        loss = F.cross_entropy(logits, targets.reshape(-1), ignore_index=-1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def torchtitan(device: torch.device, *, batch_size: int = 2, context: int = 8192) -> Iterator[torch.Tensor]:
    """torchtitan's Llama 3 8B: FSDP2, selective activation checkpointing, gradients clipped, not compiled."""
    from torchtitan import utils
    from torchtitan.models import model_name_to_cls, models_config
    from torchtitan.optimizer import build_optimizers
    from torchtitan.parallelisms.parallelize_llama import apply_ac, apply_fsdp

    config = models_config["llama3"]["8B"]
    config.norm_type, config.vocab_size, config.max_seq_len = "rmsnorm", LLAMA3_VOCABULARY, context
    with torch.device("meta"):
        model = model_name_to_cls["llama3"].from_model_args(config)
    apply_ac(model, SimpleNamespace(mode="selective", selective_ac_option="op"))
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    apply_fsdp(model, mesh, param_dtype=torch.bfloat16, reduce_dtype=torch.float32, pp_enabled=False)
    model.to_empty(device=device)
    with torch.no_grad():
        model.init_weights()
    chosen = SimpleNamespace(name="AdamW", lr=3e-4, fused=False, early_step_in_backward=False)
    optimizers = build_optimizers([model], SimpleNamespace(optimizer=chosen))
    while True:
        tokens, targets = torch.zeros(2, batch_size, context, dtype=torch.long).to(device)
        optimizers.zero_grad()
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        del logits
        loss.backward()
        utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True, pp_mesh=None)
        optimizers.step()
        yield loss


def predicted(figure: dict[str, Any]) -> float:
    """Return the prediction of a published figure, in its unit."""
    loop = globals()[figure["loop"]]
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        trace = predict(loop, gpu=figure["card"], world_size=figure["world_size"], **figure["settings"])
    nbytes = trace.peak_reserved if figure["quantity"] == "reserved" else trace.peak_allocated
    return (nbytes or 0) / UNITS[figure["unit"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--litgpt", type=Path, metavar="FOLDER")
    parser.add_argument("--torchtitan", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    folders = {"demo": Path(), "litgpt": args.litgpt, "torchtitan": args.torchtitan}
    sys.path[:0] = [str(folder) for folder in folders.values() if folder]
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "")
    warnings.simplefilter("ignore")
    print("| loop | ranks | quantity | published | predicted | | |\n|---|--:|---|--:|--:|--:|---|")
    for figure in json.loads(FILE.read_text()):
        if folders[figure["loop"]] is None:
            print(f"{figure['loop']} was left out: give --{figure['loop']} the folder of a checkout.", file=sys.stderr)
            continue
        # torchtitan's own launcher sets this.
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True" if figure["loop"] == "torchtitan" else ""
        value, name = predicted(figure), " ".join([figure["loop"], *figure["settings"].values()])
        row = f"| {name} | {figure['world_size']} | {figure['quantity']} {figure['unit']} | {figure['published']:,} "
        print(f"{row}| {value:,.2f} | {value / figure['published'] - 1:+.2%} | {figure['source']} |", flush=True)


if __name__ == "__main__":
    main()
