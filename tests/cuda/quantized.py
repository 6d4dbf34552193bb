"""QLoRA and 8-bit optimizers, predicted beside what PyTorch's CUDA build takes for them on the stand-in.

``python -m tests.standin A100-40GB -m tests.cuda.quantized``, in the environment of ``make test-cuda`` with
``pip install --no-deps bitsandbytes==0.50.2 peft==0.21.2 accelerate==1.15.0``, and ``STANDIN_LIBRARIES`` set to that
bitsandbytes' ``libbitsandbytes_cuda130.so``.
"""

import gc
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import bitsandbytes
import torch
import transformers
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch import nn

from memlab import predict

OPTIMIZERS = ("Adagrad8bit", "AdamW32bit", "AdamW8bit", "Lion8bit", "PagedAdamW8bit")


def train(device: torch.device, *, optimizer: str, width: int = 1024) -> Iterator[torch.Tensor]:
    """Two layers with one of bitsandbytes' optimizers."""
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
    adapts = getattr(bitsandbytes.optim, optimizer)(model.parameters())
    while True:
        loss = model(torch.randn(16, width, device=device)).mean()
        loss.backward()
        adapts.step()
        adapts.zero_grad()
        yield loss


def train_qlora(device: torch.device, *, folder: str, optimizer: str, checkpoints: bool) -> Iterator[torch.Tensor]:
    """A small Llama from ``folder``, its weights in 4 bits, with LoRA."""
    bits = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=checkpoints,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=bits, device_map={"": "cuda:0"}, dtype=torch.bfloat16
    )
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpoints)
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    adapts = getattr(bitsandbytes.optim, optimizer)([p for p in model.parameters() if p.requires_grad])
    while True:
        tokens = torch.randint(0, 2000, (2, 256), device=device)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        adapts.step()
        adapts.zero_grad()
        yield loss


def peak(loop: Callable[..., Iterator[Any]], steps: int = 3) -> int:
    """Bytes that PyTorch allocates for a plain loop."""
    torch._C._cuda_clearCublasWorkspaces()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run = loop(torch.device("cuda"))
    for _ in range(steps):
        next(run)
    run.close()
    return torch.cuda.max_memory_allocated()


def main() -> None:
    """Print a line for each loop."""
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        config = transformers.LlamaConfig(
            vocab_size=2000,
            hidden_size=512,
            intermediate_size=1024,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
        )
        transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
        loops = {name: partial(train, optimizer=name) for name in OPTIMIZERS}
        for name, checkpoints in (("AdamW8bit", False), ("PagedAdamW8bit", True)):
            loops[f"QLoRA, {name}"] = partial(train_qlora, folder=folder, optimizer=name, checkpoints=checkpoints)
        for name, loop in loops.items():
            taken, said = peak(loop), predict(loop, gpu="A100-40GB", steps=3).peak_allocated
            print(f"{name:24s} {taken:12,d} predicted {said:12,d} {said / taken - 1:+.4%}", flush=True)


if __name__ == "__main__":
    main()
