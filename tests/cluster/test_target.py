"""The functions that other processes can import, and how they do."""

import subprocess
import sys
import types

import pytest

from memlab.cluster.target import load, target_of
from memlab.errors import BadTrain, BadValue
from notebooks.ranks import data_parallel

LOOP = "def train(device):\n    yield {}\n"


def test_a_function_of_a_module_is_known_by_its_file():
    assert target_of(data_parallel.train) == f"{data_parallel.__file__}:train"


def in_a_cell():
    code = types.ModuleType("__main__")
    exec(LOOP.format(0), vars(code))
    return code.train


def nested(device):
    yield 0


nested.__qualname__ = "test.<locals>.nested"


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (lambda device: iter([0]), "<lambda> is no function at the top level of a module, so"),
        (nested, "nested is no function at the top level of a module, so"),
        (in_a_cell(), "train is defined in a notebook's cell or in the script that runs, so"),
        (types.SimpleNamespace(), "namespace() is no function at the top level of a module, so"),
    ],
)
def test_others_are_refused_with_the_remedy(train, said):
    with pytest.raises(BadTrain) as caught:
        target_of(train)
    assert str(caught.value).startswith(said)
    assert "%%writefile train.py" in str(caught.value)


def test_a_name_that_means_something_else_by_now_is_refused(monkeypatch):
    train = data_parallel.train
    monkeypatch.setattr(data_parallel, "train", lambda device: iter([0]))
    with pytest.raises(BadTrain, match=r"train is not what notebooks.ranks.data_parallel.train means now"):
        target_of(train)


def test_a_fresh_process_loads_a_file_with_its_neighbours_and_a_module_of_a_package_as_one(tmp_path):
    (tmp_path / "json.py").write_text("import neighbour\n" + LOOP.format("neighbour.value"))
    (tmp_path / "neighbour.py").write_text("value = 7")
    package = tmp_path / "outer" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package.parent / "value.py").write_text("value = 8")
    (package / "loop.py").write_text("from ..value import value\n" + LOOP.format("value"))
    targets = [f"{tmp_path}/json.py:train", f"{package}/loop.py:train"]  # the standard library has a json, too
    code = f"from memlab.cluster.target import load; print([*map(next, (load(t)(None) for t in {targets}))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[7, 8]\n"


@pytest.mark.parametrize("target", ["absent.py:train", "train", f"{__file__}:absent"])
def test_what_is_not_there_is_said(target):
    with pytest.raises(BadValue, match="give"):
        load(target)
