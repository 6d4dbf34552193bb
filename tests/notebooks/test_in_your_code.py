"""The code in the tables *In your code*: it exists where the library is installed, with these arguments."""

import ast
import importlib
import importlib.util
import inspect
import json
import re
from collections.abc import Iterator

import pytest

from tests.notebooks.cells import NOTEBOOKS
from tests.notebooks.form import in_your_code

HOMES = {
    module: names.split()
    for module, names in {
        "accelerate": "Accelerator ParallelismConfig",
        "accelerate.utils": "DataLoaderConfiguration DistributedDataParallelKwargs FullyShardedDataParallelPlugin "
        "InitProcessGroupKwargs TorchDynamoPlugin",
        "bitsandbytes": "bitsandbytes",
        "cut_cross_entropy": "linear_cross_entropy",
        "deepspeed": "deepspeed",
        "deepspeed.pipe": "PipelineModule",
        "deepspeed.runtime.utils": "see_memory_usage",
        "liger_kernel.transformers": "AutoLigerKernelForCausalLM LigerFusedLinearCrossEntropyLoss",
        "lightning.pytorch": "Trainer",
        "lightning.pytorch.callbacks": "BackboneFinetuning DeviceStatsMonitor",
        "lightning.pytorch.strategies": "DDPStrategy FSDPStrategy ModelParallelStrategy",
        "lightning.pytorch.tuner": "Tuner",
        "peft": "LoraConfig get_peft_model",
        "timm": "timm",
        "torch": "torch",
        "torch.distributed.fsdp": "MixedPrecisionPolicy fully_shard",
        "torch.distributed.pipelining": "Schedule1F1B",
        "torch.distributed.tensor.parallel": "ColwiseParallel RowwiseParallel parallelize_module",
        "torch.nn": "nn",
        "torch.nn.functional": "F",
        "torch.utils.checkpoint": "checkpoint",
        "torch.utils.data": "DataLoader",
        "torch.utils.data.distributed": "DistributedSampler",
        "torchao": "torchao",
        "torchao.optim": "CPUOffloadOptimizer",
        "torchao.optim.adam": "_AdamW",
        "torchao.quantization": "to_nf4",
        "transformers": "AutoModelForCausalLM BitsAndBytesConfig TrainingArguments",
        "trl": "SFTConfig SFTTrainer",
        "unsloth": "FastLanguageModel",
    }.items()
}
HOME = {name: module for module, names in HOMES.items() for name in names}
MODULES = {
    "F",
    "bitsandbytes",
    "deepspeed",
    "nn",
    "timm",
    "torch",
    "torchao",
}  # names of a module and not of what is in it
OWN = {
    *(
        "accelerator",
        "engine",
        "images",
        "logits",
        "model",
        "rows",
        "sampler",
        "schedule",
        "targets",
        "train",
        "trainer",
        "x",
    ),
    *("activation_checkpointing_enable", "gradient_checkpointing_enable", "requires_grad_", "zero_grad"),
}
# Not in the PyTorch that is installed here; the table says from which version on.
LATER = {"F.linear_cross_entropy"}


def calls() -> Iterator[tuple[str, str]]:
    """Every call in the tables, with its notebook."""
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            for written in in_your_code("".join(cell["source"])).values():
                for code in re.findall(r"`([\w.]+\(.*?\))`", written):
                    yield notebook.stem, code


CALLS = list(calls())


def refusal(code: str) -> str:
    """Why a call, or one in its arguments, cannot be made, ``""`` if it can; skips what nothing here can check."""
    checked = [answer for call in ast.walk(ast.parse(code)) if isinstance(call, ast.Call) for answer in answers(call)]
    if not checked:
        pytest.skip("the reader's own, or not installed")
    return "; ".join(filter(None, checked))


def answers(call: ast.Call) -> Iterator[str]:
    """Yield why it cannot be made, ``""`` if it can; nothing if that cannot be known here."""
    written = ast.unparse(call.func)
    if "(" in written or written in LATER:  # of what another call returns
        return
    name, *rest = written.split(".")
    if name in OWN:
        return
    if name not in HOME:
        yield f"{name} is in neither HOMES nor OWN of {__name__}"
    elif importlib.util.find_spec(HOME[name].partition(".")[0]) is not None:
        found = importlib.import_module(HOME[name])
        try:
            for part in rest if name in MODULES else [name, *rest]:
                found = getattr(found, part)
            named = {keyword.arg: None for keyword in call.keywords if keyword.arg}
            inspect.signature(found).bind_partial(*[None] * len(call.args), **named)
        except (AttributeError, TypeError) as error:
            yield str(error)
        except ValueError:  # it exists, and a function written in C tells no arguments
            yield ""
        else:
            yield ""


@pytest.mark.parametrize(("notebook", "code"), CALLS, ids=[code for _, code in CALLS])
def test_a_call_can_be_made(notebook, code):
    assert refusal(code) == "", notebook


def test_calls_are_found():
    assert ("06_gradient_checkpointing", "checkpoint(block, x, use_reentrant=False)") in CALLS


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("torch.optim.AdamW(weights, fuse=True)", "fuse"),
        ("torch.cuda.peak_memory()", "peak_memory"),
        ("TrainingArgumants(bf16=True)", "TrainingArgumants"),
        ("DataLoader(data, sampler=DistributedSampler(data, shufle=True))", "shufle"),
    ],
)
def test_a_name_that_does_not_exist_is_found(code, word):
    assert word in refusal(code)
