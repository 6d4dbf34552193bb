"""The options of scripts: how they are written, which of them are tried, and what is told."""

import argparse
import ast
from textwrap import dedent

import pytest

from memlab.errors import BadValue
from memlab.script import Script
from memlab.script.options import Option, follow_parsers, in_constants, leaner, of_constants, with_constants

SOURCE = """
    import argparse
    batch_size = 12
    dtype, bias = "float32", False
    dropout = 0.1
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("data", nargs="?")
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(dedent(SOURCE))
    return path


def test_settings_become_options_as_the_script_writes_them(path):
    script = Script(path, "data", 1).with_options(batch_size=64, amp=True, per_device_size=2, compile=False)
    assert script.arguments == ("data", "1", "--batch-size=64", "--amp", "--per_device_size=2", "--compile=False")
    assert repr(script) == "train.py data 1 --batch-size=64 --amp --per_device_size=2 --compile=False"
    assert Script(path).with_options(amp=False).arguments == ()


def test_bad_paths_are_one_sentence(path, tmp_path):
    for bad, words in {
        tmp_path: "is a folder: give the script in it that trains",
        tmp_path / "nowhere.py": "is not there (looked in ",
        tmp_path / "loop.ipynb": "is a notebook: copy its train function",
        tmp_path / "wrong.py": "is not Python (",
    }.items():
        if bad.suffix and bad.stem != "nowhere":
            bad.write_text("def train(:")
        with pytest.raises(BadValue) as caught:
            Script(bad)
        assert words in str(caught.value)


def test_what_argparse_parses_is_written_down(monkeypatch):
    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", argparse.ArgumentParser.parse_known_args)
    options = follow_parsers()
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--betas", nargs=2)
    parser.add_argument("data")
    parser.parse_args(["here", "-b", "8"])
    assert options == [
        Option("--batch-size", 8),
        Option("--amp", False, is_switch=True),
        Option("--dtype", "fp32", choices=("fp32", "bf16")),
        Option("--betas"),
    ]


def test_constants_have_the_values_that_they_had_at_the_end(path):
    found = of_constants(path, {"batch_size": 64, "dtype": "float32", "bias": False, "dropout": 0.1, "other": 3})
    assert found == [Option("--batch_size", 64), Option("--dropout", 0.1)]


def test_constants_of_the_source_and_of_its_classes_can_have_other_values(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("batch_size = 12\nlr = batch_size / 4\n\nclass Config:\n    BLOCK: int = 64\n    batch_size = 2\n")
    batch, block, other = in_constants(path)
    assert (batch.value, block.value, block.name) == (12, 64, "block")
    assert (block.told(32), other.told(1)) == ("train.py:5: BLOCK: int = 32", "train.py:6: batch_size = 1")
    changed = ast.unparse(with_constants(path, {batch.key: 6, block.key: 32}))
    assert changed == "batch_size = 6\nlr = batch_size / 4\n\nclass Config:\n    BLOCK: int = 32\n    batch_size = 2"


def test_a_second_switch_for_16_bits_is_not_tried(path):
    options = [
        Option("--fp16", True),
        Option("--bf16", False),
        Option("--min-length", 100),
        Option("--fp16-eval", False),
    ]
    assert leaner(options) == []
    assert leaner([Option("--fp16", False), *options[1:]]) == [(Option("--fp16", False), True), (options[1], True)]


def test_the_most_promising_options_are_tried_first():
    options = [
        Option("--epochs", 90),
        Option("--hidden-dim", 512),
        Option("--amp", False, is_switch=True),
        Option("--seed", 42),
        Option("--block_size", 1024),
        Option("--test-batch-size", 1000),
        Option("--offload", True),
        Option("--dtype", "float32", choices=("float32", "float16")),
        Option("--batch-size", 33),
        Option("--lr", 0.1),
        Option("--layers", 1),
    ]
    assert [(option.name, value) for option, value in leaner(options)] == [
        ("batch_size", 16),
        ("amp", True),
        ("dtype", "float16"),
        ("block_size", 512),
        ("hidden_dim", 256),
    ]
