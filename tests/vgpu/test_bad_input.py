"""The refusals of what cannot be predicted: one clear sentence, with what to do."""

import importlib
import itertools
import linecache
import re
import subprocess
import sys
import types
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from torch import nn

from memlab import predict
from memlab.errors import BadTrain, BadValue, Unpredictable, WrongDevice
from memlab.vgpu import CARDS, find_card
from memlab.vgpu.refusals import where

library = torch.library.Library("memlab_tests", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")


def test_tokens_left_on_the_cpu():
    def train(device):
        model = nn.Embedding(300, 3).to(device)
        tokens = torch.zeros(4, 8, dtype=torch.int64)
        yield model(tokens).sum()

    line = train.__code__.co_firstlineno + 3
    words = f"at test_bad_input.py:{line} got int64[4, 8] on the CPU and float32[300, 3] on the GPU: move both with"
    with pytest.raises(WrongDevice, match=re.escape(words)):
        predict(train)


def test_floats_left_on_the_cpu():
    def train(device):
        yield nn.Linear(300, 8).to(device)(torch.ones(4, 300)).sum()

    with pytest.raises(WrongDevice, match=r"float32\[4, 300\] on the CPU"):
        predict(train)


def test_a_size_that_depends_on_the_data():
    def train(device):
        x = torch.randint(0, 9, (100,), device=device)
        yield torch.bincount(x).sum()

    with pytest.raises(Unpredictable, match=r"bincount.* has a result that depends on the data.*fixed sizes"):
        predict(train)


@pytest.fixture
def grouping(monkeypatch):
    """A package that is installed somewhere, in version 2.1."""
    module = types.ModuleType("grouping")
    module.__version__ = "2.1"
    text = "import torch\ndef counts(x):\n    return torch.bincount(x)\ndef first(x):\n    return x.nonzero()[0]\n"
    exec(compile(text, "/lib/site-packages/grouping/counting.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "grouping", module)
    return module


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("counts", r"bincount\.default \(in grouping 2\.1, counting\.py:3\) at test_bad_input\.py:\d+ has a result"),
        ("first", r"nonzero\.default \(in grouping 2\.1, counting\.py:5\) at test_bad_input\.py:\d+ has a result"),
    ],
)
def test_what_a_library_asks_for_is_told_with_its_line(grouping, name, words):
    def train(device):
        yield getattr(grouping, name)(torch.randint(0, 9, (100,), device=device)).sum()

    with pytest.raises(Unpredictable, match=words):
        predict(train)


def test_what_the_loop_raises_is_not_logged_before(caplog):
    with pytest.raises(RuntimeError, match="reduction dim"):
        predict(lambda device: iter([torch.ones(3, 4, device=device) @ torch.ones(3, 4, device=device)]))
    assert caplog.records == []


def test_an_operator_without_a_fake_kernel():
    def train(device):
        yield torch.ops.memlab_tests.twice(torch.ones(3, device=device)).sum()

    with pytest.raises(Unpredictable, match=r"memlab_tests.twice.* has no fake kernel: give it one .*register_fake"):
        predict(train)


def test_a_branch_on_the_data_is_taken_one_way():
    taken = []

    def train(device):
        x = torch.ones(100, device=device)
        while x.sum() > 1:  # False on a virtual GPU, so the loop ends
            raise AssertionError
        taken.append(bool((x > 2).any()))
        yield x.sum()

    predict(train)
    assert taken == [False]


def test_tracing_in_a_module_that_the_loop_is_the_first_to_import(tmp_path, monkeypatch):
    line = "model = torch.jit.trace(torch.nn.Linear(3, 3), torch.ones(3))"
    (tmp_path / "reader_of_a_graph.py").write_text(f"import torch\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reader_of_a_graph", raising=False)

    def train(device):
        yield importlib.import_module("reader_of_a_graph").model(torch.ones(3)).sum()

    with pytest.raises(Unpredictable, match="cannot be predicted"):
        predict(train)


def test_an_unknown_card_is_answered_with_those_that_are_called_alike():
    with pytest.raises(BadValue, match=r"gpu 'A100' is not a card that memlab knows: similar names are A100-40GB"):
        find_card("A100")
    assert find_card("a100 80gb") is CARDS["A100-80GB"]
    assert find_card("rtx-4090") is CARDS["RTX 4090"]
    assert find_card("RTX 4060 Ti") is CARDS["RTX 4060 Ti 16GB"]


def test_what_measure_refuses_predict_refuses():
    def train(device, *, batch_size=1):
        return torch.ones(batch_size, device=device)

    with pytest.raises(BadTrain, match="not a generator"):
        predict(train)
    with pytest.raises(BadValue, match="has no setting 'width': its settings are batch_size"):
        predict(train, width=3)


def test_a_loop_that_returns_its_losses_is_refused_at_its_first_step():
    def train(device):
        model = torch.nn.Linear(4, 4).to(device)
        optimizer, losses = torch.optim.AdamW(model.parameters()), []
        for _ in itertools.count():
            losses.append(model(torch.ones(4, device=device)).sum())
            losses[-1].backward()
            optimizer.step()
        return losses

    with pytest.raises(BadTrain, match="train trains before it has yielded"):
        predict(train)


def test_what_train_raises_comes_out_as_it_is():
    def train(device):
        torch.ones(3, device=device)
        raise ZeroDivisionError("mine")
        yield

    with pytest.raises(ZeroDivisionError, match="mine"):
        predict(train)


LACKING = """
import torch
from memlab import measure, predict
del torch._C._acc.PrivateUse1Hooks
def train(device):
    yield torch.ones(3, device=device).sum()
for _ in range(2):
    try:
        predict(train)
    except Exception as error:
        print(type(error).__name__, error)
print(measure(train, device="cpu").losses[0])
"""


def test_a_torch_without_the_hooks_says_so_every_time():
    run = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True, check=True)
    *errors, loss = run.stdout.splitlines()
    assert len(errors) == 2
    for error in errors:
        assert re.fullmatch(r"NoVirtualGpu torch .* lacks what the virtual GPU needs .* measure still works\.", error)
    assert loss == "3.0"


TAKEN = """
import types
from dataclasses import dataclass, field
from functools import partial
import torch
torch.utils.rename_privateuse1_backend("npu")
torch.npu = types.SimpleNamespace(_is_in_bad_fork=lambda: False, manual_seed_all=lambda seed: None)
from memlab import measure, predict
def train(device):
    yield torch.ones(3, device=device).sum()
try:
    predict(train)
except Exception as error:
    print(type(error).__name__, error)
print(measure(train, device="cpu").losses[0])
"""


def test_another_backend_in_the_slot():
    run = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, check=True)
    error, loss = run.stdout.splitlines()
    assert error.startswith("NoVirtualGpu The virtual GPU needs PyTorch's private-use device, and the backend 'npu'")
    assert loss == "3.0"


def test_a_constructor_that_a_dataclass_makes_is_no_place():
    @dataclass
    class Config:
        place: str = field(default_factory=partial(where))

    line = sys._getframe().f_lineno + 1
    assert Config().place == f"test_bad_input.py:{line}"


def test_a_line_of_a_notebook_is_told_by_what_stands_in_it(monkeypatch):
    source = "def train(device):\n    x = torch.randint(9, (9,), device=device)\n    yield x.bincount().sum()\n"
    file = "/somewhere/ipykernel_12/34567.py"
    monkeypatch.setitem(linecache.cache, file, (len(source), None, source.splitlines(keepends=True), file))
    exec(compile(source, file, "exec"), names := {"torch": torch})
    with pytest.raises(Unpredictable, match=r"at line 3 of a cell, 'yield x\.bincount\(\)\.sum\(\)' has a result"):
        predict(names["train"])
