import errno
import os
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from memlab import cli
from memlab.cli.functions import load_function, read_settings
from memlab.errors import BadValue
from memlab.run import measure
from memlab.trace import Trace
from memlab.units import format_bytes

LOOP = """
    import torch
    from torch import nn

    from sizes_of_mine import WIDTH

    def helper():
        pass

    def train(device, *, batch_size=8, precision="fp32"):
        model = nn.Linear(WIDTH, WIDTH).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.randn(batch_size, WIDTH, device=device)
        while True:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    def silent(device):
        yield None

    def broken(device):
        yield 1.0 / 0

    number = 3
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a Python file into a new folder; what loading it changes in this process is undone."""
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
        return name

    yield write
    for path in tmp_path.rglob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def loop(write):
    """A file with train functions, which imports a file beside it."""
    write("mine/sizes_of_mine.py", "WIDTH = 32")
    return write("mine/loop.py", LOOP)


def refusal(*arguments):
    """The sentence of a call that is refused."""
    with pytest.raises(BadValue) as caught:
        load_function(*arguments)
    return str(caught.value)


def test_the_table_is_that_of_the_trace(loop, capsys):
    assert cli.main(["measure", f"{loop}:train", "batch_size=64", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    trace = measure(load_function(f"{loop}:train"), batch_size=64, device="cpu", steps=5)
    assert f"train(batch_size=64, precision='fp32') measured on {trace.device}\n" in text
    rows = dict(line.split(maxsplit=1) for line in text.splitlines() if line.count(" ") > 3)
    for category, count in trace.by_category.items():
        assert f"{category:<22}{format_bytes(count):>9}{count / trace.peak_allocated:>7.0%}\n" in text
    assert rows["peak"].startswith(format_bytes(trace.peak_allocated))
    assert rows["loss"] == f"{trace.losses[0]:.4g} to {trace.losses[-1]:.4g}"
    assert rows["steps"] == "5"
    assert f"{trace.flops:,}" in text
    assert "median of the plain steps" in text
    assert trace.sentence[1:] in text
    assert "bytes of live tensor storages" in text


def test_options_reach_the_run(loop, capsys):
    assert cli.main(["measure", f"{loop}:train", "precision=bf16", "--steps", "2", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "precision='bf16'" in text
    assert "every step was X-rayed" in text


def test_a_train_without_losses_is_fine(loop, capsys):
    assert cli.main(["measure", f"{loop}:silent", "--device", "cpu"]) == 0
    assert "loss                  none\n" in capsys.readouterr().out


def test_out_of_memory_is_a_result(loop, capsys):
    assert cli.main(["measure", f"{loop}:train", "--budget", "4 KiB", "--device", "cpu"]) == 0
    assert "\nOut of memory outside of forward, backward and optimizer at " in capsys.readouterr().out


def test_the_trace_is_written_as_json(loop, tmp_path, capsys):
    file = tmp_path / "new" / "trace.json"
    assert cli.main(["measure", f"{loop}:train", "--device", "cpu", "--json", str(file)]) == 0
    trace = Trace.from_json(file.read_text())
    assert len(trace.steps) == 5
    assert format_bytes(trace.peak_allocated) in capsys.readouterr().out


def test_a_full_disk_loses_neither_the_table_nor_the_old_file(loop, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = tmp_path / "trace.json"
    file.write_text("old")
    monkeypatch.setattr("os.fsync", full)
    assert cli.main(["measure", f"{loop}:train", "--device", "cpu", "--json", str(file)]) == 2
    captured = capsys.readouterr()
    assert "Peak " in captured.out
    assert "trace.json could not be written (No space left on device)" in captured.err
    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["batchsize=4"], "no setting 'batchsize': its settings are batch_size, precision"),
        (["steps=9"], "no setting 'steps'"),
        (["batch_size"], "'batch_size' is not a setting: give key=value"),
        (["--budget", "lots"], "'lots' is not a number of bytes"),
        (["--steps", "few"], "steps='few' is not a number of steps"),
        (["--device", "gpu0"], "'gpu0' is not a device"),
    ],
)
def test_a_bad_value_is_one_sentence(loop, arguments, words, capsys):
    assert cli.main(["measure", f"{loop}:train", *arguments]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1


def test_what_is_not_a_function_is_refused(loop, capsys):
    assert cli.main(["measure", f"{loop}:number"]) == 2
    assert "3 is not a function" in capsys.readouterr().err


# The file


@pytest.mark.parametrize("target", ["loop.py", "loop.py:", ":train", "train", ""])
def test_a_target_names_a_file_and_a_function(target):
    assert refusal(target) == f"{target!r} does not name a function: give FILE:FUNCTION, as in loop.py:train."


def test_a_missing_function_is_told_with_those_that_are_there(loop):
    assert refusal(f"{loop}:trian") == (
        f"{loop} has no function 'trian': give one that it defines (helper, train, silent, broken), or {loop} alone, "
        "to run it as a script."
    )


def test_a_file_without_functions_says_so(write):
    assert "(it has none), or " in refusal(write("empty.py", "from os import getcwd") + ":train")


def test_a_missing_file_is_told_with_where_it_was_looked_for(write, tmp_path):
    assert f"nowhere.py is not there (looked in {tmp_path})" in refusal("nowhere.py:train")


def test_a_notebook_is_refused_with_the_way_out(write):
    assert "copy the train function to a .py file" in refusal(write("06.ipynb", "{}") + ":train")


def test_another_kind_of_file_is_refused(write):
    assert "FILE ends in .py" in refusal(write("train.txt", "") + ":train")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("def train(:", "SyntaxError: "),
        ("raise SystemExit('bye')", "SystemExit: bye"),
    ],
)
def test_a_file_that_does_not_load_is_named_with_its_error(write, text, error):
    message = refusal(write("failing.py", text) + ":train")
    assert message.startswith(f"failing.py does not load ({error}")
    assert "run python failing.py to see where" in message


def test_the_main_part_of_a_script_is_not_run(write):
    text = "def train(device):\n    yield 1\n\nif __name__ == '__main__':\n    raise ZeroDivisionError"
    assert load_function(write("script.py", text) + ":train").__name__ == "train"


# Settings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("1e-3", 1e-3),
        ("True", True),
        ("None", None),
        ("(1, 2)", (1, 2)),
        ("bf16", "bf16"),
        ("'8'", "8"),
        ("", ""),
        ("a=b", "a=b"),
        ("2 GiB", "2 GiB"),
        ("{[]: 1}", "{[]: 1}"),
    ],
)
def test_values_are_python_literals_or_text(text, value):
    assert read_settings([f"key={text}"]) == {"key": value}


@pytest.mark.parametrize("word", ["batch_size", "=8", "batch size=8", "--batch=8", ""])
def test_a_word_that_is_no_setting_is_refused(word):
    with pytest.raises(BadValue, match="give key=value, as in batch_size=8") as caught:
        read_settings([word])
    assert str(caught.value).startswith(repr(word))


def test_the_readers_own_error_is_shown_with_the_readers_frames_alone(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def train(device):\n    helper()\n    yield\n\ndef helper():\n    raise KeyError('gone')\n")
    assert cli.main(["measure", f"{file}:train"]) == 1
    said = capsys.readouterr().err
    assert said.count("mine.py") == 2
    assert "memlab/run.py" not in said
    assert said.endswith("KeyError: 'gone'\n")


def test_a_pipe_of_the_readers_own_that_breaks_is_an_error_like_others(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("def train(device):\n    raise BrokenPipeError('mine')\n    yield\n")
    assert cli.main(["measure", f"{file}:train"]) == 1
    assert capsys.readouterr().err.endswith("BrokenPipeError: mine\n")


def test_an_error_of_memlab_itself_is_not_hidden(monkeypatch):
    monkeypatch.setattr("memlab.cli.logbook.read", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["logbook"])


def test_a_folder_is_no_file_to_write(loop, capsys):
    before = Path(loop).read_text()
    with pytest.raises(SystemExit, match="2"):
        cli.main(["measure", f"{loop}:train", "--device", "cpu", "--json", f"{loop}/"])
    assert f"argument --json: '{loop}/' names a folder: give a file in it." in capsys.readouterr().err
    assert Path(loop).read_text() == before
