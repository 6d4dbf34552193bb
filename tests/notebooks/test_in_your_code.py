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
    "TrainingArguments": "transformers",
    "FullyShardedDataParallelPlugin": "accelerate",
    "FSDPStrategy": "lightning.pytorch.strategies",
    "DeviceStatsMonitor": "lightning.pytorch.callbacks",
    "Trainer": "lightning.pytorch",
    "FastLanguageModel": "unsloth",
    "checkpoint": "torch.utils.checkpoint",
    "deepspeed": "deepspeed",
    "torch": "torch",
}


def calls() -> Iterator[tuple[str, str]]:
    """Every call in the tables, with its notebook."""
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            for written in in_your_code("".join(cell["source"])).values():
                for code in re.findall(r"`([\w.]+\(.*?\))`", written):
                    yield notebook.stem, code


CALLS = list(calls())


def refusal(code: str) -> str:
    """Why a call cannot be made, ``""`` if it can; skips what is the reader's own, or not installed."""
    call = ast.parse(code, mode="eval").body
    name, _, rest = ast.unparse(call.func).partition(".")
    if name not in HOMES:
        pytest.skip(f"{name} is the reader's own")
    if importlib.util.find_spec(HOMES[name].partition(".")[0]) is None:
        pytest.skip(f"{HOMES[name]} is not installed")
    found = importlib.import_module(HOMES[name])
    try:
        for part in [*([name] if name != HOMES[name] else []), *filter(None, rest.split("."))]:
            found = getattr(found, part)
        named = {keyword.arg: None for keyword in call.keywords if keyword.arg}
        inspect.signature(found).bind_partial(*[None] * len(call.args), **named)
    except (AttributeError, TypeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("notebook", "code"), CALLS, ids=[code for _, code in CALLS])
def test_a_call_can_be_made(notebook, code):
    assert refusal(code) == "", notebook


def test_calls_are_found():
    assert ("06_gradient_checkpointing", "checkpoint(block, x, use_reentrant=False)") in CALLS


@pytest.mark.parametrize(
    ("code", "word"),
    [("torch.optim.AdamW(weights, fuse=True)", "fuse"), ("torch.cuda.peak_memory()", "peak_memory")],
)
def test_a_name_that_does_not_exist_is_found(code, word):
    assert word in refusal(code)
