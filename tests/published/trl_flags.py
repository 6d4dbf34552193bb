"""The bytes that each flag of a fine-tuning script by TRL costs or saves with a Llama 1B, predicted.

``python -m tests.published.trl_flags PYTHON`` writes ``notebooks/recorded/trl-flags.json``, in some minutes, where trl,
peft, datasets and bitsandbytes are installed beside memlab. The script is ``sft_script.py``, as it is. PYTHON is one
that has a CUDA build (``make test-cuda`` makes one) and these libraries: there, on the stand-in's card, the same script
is run, with ``STANDIN_LIBRARIES`` set to bitsandbytes' ``libbitsandbytes_cuda130.so``.
"""

import json
import runpy
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
import transformers

from memlab import predict
from memlab.files import write_atomically
from memlab.lab.recorded import folder
from memlab.nets import LLAMA_1B
from memlab.script import Script
from tests.published.llama import config

SCRIPT = Path(__file__).with_name("sft_script.py")
GPU = "RTX 4090"
# What is written, from one line to the next.
LADDER = [
    ("LoRA on bfloat16 weights", "gradient_checkpointing=False"),
    ("NF4 weights", "load_in_4bit=True"),
    ("checkpoints (TRL's default)", "gradient_checkpointing=True"),
    ("no padding", "packing=True"),
    ("paged optimizer in 8 bits", 'optim="paged_adamw_8bit"'),
    ("checkpoints on the host", "activation_offloading=True"),
]


def write_model(where: str) -> None:
    """Write a Llama 1B of zeros, as transformers reads it."""
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config(LLAMA_1B)).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.zero_()
    model.tie_weights()
    model.save_pretrained(where)


def count(*arguments: str) -> None:
    """Run the script on the card that is there, and print the bytes allocated at most."""
    sys.argv = [str(SCRIPT), *arguments]
    runpy.run_path(str(SCRIPT), run_name="__main__")
    print(torch.cuda.max_memory_allocated())


def main(python: str) -> None:
    """Predict the script with one flag more each time, and have PyTorch's CUDA build count."""
    rows, flags = [], {}
    counting = [python, "-m", "tests.standin", GPU, "-m", "tests.published.trl_flags", "--count"]
    with tempfile.TemporaryDirectory() as where:
        write_model(where)
        for name, flag in LADDER:
            flags[flag.partition("=")[0]] = flag
            trace = predict(Script(SCRIPT, where, *flags.values()), gpu=GPU)
            run = subprocess.run([*counting, where, *flags.values()], capture_output=True, text=True, check=True)
            counted = int(run.stdout.splitlines()[-1])
            rows.append([name, flag, trace.peak_allocated, counted, trace.host_peak])
            print(rows[-1], flush=True)
    libraries = ("trl", "peft", "bitsandbytes", "transformers", "torch")
    record = {"gpu": GPU, "versions": {name: version(name) for name in libraries}, "rows": rows}
    write_atomically(folder() / "trl-flags.json", json.dumps(record, indent=1).encode() + b"\n")


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    count(*rest) if first == "--count" else main(first)
