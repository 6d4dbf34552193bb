"""What the tables *In your code* tell to write exists where the library is installed, with these arguments."""

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


def callee(node: ast.Call) -> str:
    return ast.unparse(node.func)


@pytest.mark.parametrize(("notebook", "code"), CALLS, ids=[code for _, code in CALLS])
def test_a_call_can_be_made(notebook, code):
    call = ast.parse(code, mode="eval").body
    name, _, rest = callee(call).partition(".")
    if name not in HOMES:
        pytest.skip(f"{name} is the reader's own")
    if importlib.util.find_spec(HOMES[name].partition(".")[0]) is None:
        pytest.skip(f"{HOMES[name]} is not installed")
    home = importlib.import_module(HOMES[name])
    found = home if name == HOMES[name] else getattr(home, name)
    for part in filter(None, rest.split(".")):
        found = getattr(found, part)
    inspect.signature(found).bind_partial(
        *[None] * len(call.args), **{keyword.arg: None for keyword in call.keywords if keyword.arg}
    )


def test_calls_are_found():
    assert ("06_gradient_checkpointing", "checkpoint(block, x, use_reentrant=False)") in CALLS


def test_an_argument_that_does_not_exist_is_found():
    with pytest.raises(TypeError):
        test_a_call_can_be_made("", "torch.optim.AdamW(weights, fuse=True)")
