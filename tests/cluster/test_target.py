"""Which functions other processes can import, and how they do."""

import subprocess
import sys
import types

import pytest

from memlab.cluster.target import load, target_of
from memlab.errors import BadTrain, BadValue
from tests.cluster import data_parallel

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
    with pytest.raises(BadTrain, match=r"train is not what tests.cluster.data_parallel.train means now"):
        target_of(train)


def loaded(target):
    """What a fresh process finds there: the first thing that it yields."""
    code = f"from memlab.cluster.target import load; print(*load({target!r})(None))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_file_is_loaded_with_its_neighbours_whatever_else_has_its_name(tmp_path):
    (tmp_path / "json.py").write_text("import neighbour\n" + LOOP.format("neighbour.value"))
    (tmp_path / "neighbour.py").write_text("value = 7")
    assert loaded(f"{tmp_path}/json.py:train") == "7"


def test_a_module_of_a_package_is_loaded_as_one(tmp_path):
    package = tmp_path / "outer" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package.parent / "value.py").write_text("value = 8")
    (package / "loop.py").write_text("from ..value import value\n" + LOOP.format("value"))
    assert loaded(f"{package}/loop.py:train") == "8"


@pytest.mark.parametrize("target", ["absent.py:train", "train", f"{__file__}:absent"])
def test_what_is_not_there_is_said(target):
    with pytest.raises(BadValue, match="give"):
        load(target)
