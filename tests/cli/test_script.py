"""``memlab predict train.py -- ...`` and ``memlab measure train.py -- ...``."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

from memlab import cli
from memlab.script import plan
from memlab.trace import Trace

pytestmark = pytest.mark.slow

SCRIPT = """
    import argparse
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    print("training")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(64, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        model(torch.ones(args.batch_size, 64, device=device)).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(dedent(SCRIPT))
    return "train.py"


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "batch_size=16"],
        ["predict", "--", "--batch-size=16"],
        ["fit", "batch_size=16:64"],
    ],
)
def test_arguments_that_a_script_does_not_read_are_refused(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = dedent(SCRIPT).replace("args = parser.parse_args()", "args = argparse.Namespace(batch_size=8)")
    (tmp_path / "fixed.py").write_text(told)
    command, *settings = words
    assert cli.main([command, "fixed.py", "--gpu", "T4", *settings]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "fixed.py does not read its command line, so --batch-size=16 changes nothing: have it take an opt" in err


def test_an_argument_that_is_read_after_the_training_is_none_of_them(script, tmp_path, capsys):
    told = (tmp_path / script).read_text().replace("parser.parse_args()", "parser.parse_args(['--batch-size', '8'])")
    (tmp_path / script).write_text(
        f"{told}torch.save(model, sys.argv[1])\n".replace("import argparse", "import argparse, sys")
    )
    assert cli.main(["predict", script, "--gpu", "T4", "--", "model.pt"]) == 0
    assert capsys.readouterr().out.startswith("train.py model.pt predicted on T4\n")


def test_the_arguments_of_a_script_stand_behind_two_dashes(script, tmp_path, capfd):
    words = ["predict", script, "--gpu", "L4", "--steps", "2", "--json", "trace.json", "--", "--batch-size", "16"]
    assert cli.main(words) == 0
    out, err = capfd.readouterr()
    trace = Trace.from_json((tmp_path / "trace.json").read_text())
    assert out.startswith("train.py --batch-size 16 predicted on L4\n")
    assert trace.sentence[1:] in out
    assert "training" in err
    assert "training" not in out
    assert (trace.settings, len(trace.steps)) == ({"arguments": "--batch-size 16"}, 2)


def test_out_of_memory_is_told_with_what_to_change(script, capfd, monkeypatch):
    def told(script, answer, tell, **where):
        tell("trying")
        return [script, where, answer.options[1].value]

    monkeypatch.setattr(plan, "plan", told)
    assert cli.main(["predict", script, "--gpu", "T4", "batch_size=50000000", "--budget", "10 GiB"]) == 0
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert "CUDA out of memory. Tried to allocate 11.92 GiB" in "".join(lines)
    where = {"gpu": "T4", "ranks": (None, 0), "until": None, "guesses": {}, "chosen": None, "room": 10 * 2**30}
    assert lines[-3:] == ["train.py --batch-size=50000000", str(where), "50000000"]
    assert "memlab: trying\n" in err


def test_where_batches_differ_it_fits_with_those_that_were_seen(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = dedent(SCRIPT).replace("while True:", "for step in range(9):").replace("args.batch_size", "4**step")
    Path("train.py").write_text(text)
    assert cli.main(["predict", "train.py", "--gpu", "T4", "--steps=8"]) == 0
    out = capfd.readouterr().out
    assert out.splitlines()[1].startswith("Fits with the batches of these 8 steps, which differ: reserves ")
    assert "Its steps differ, " in out


def test_a_script_that_compiles_says_so(script, capfd):
    text = Path(script).read_text().replace("optimizer =", "model.compile(); optimizer =")
    Path(script).write_text(text)
    assert cli.main(["predict", script, "--gpu", "A100-40GB", "--steps=2"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[1].startswith("Fits: reserves ")
    assert err.count("memlab: PyTorch compiles the code") == 1


def test_a_number_that_nobody_knows_can_be_given(script, tmp_path, capfd):
    text = "loss = model(torch.ones(8, 64, device=device)).sum()\nassert 1 < loss.item() < 2\nloss.backward()\n"
    head = dedent(SCRIPT).partition("while True")[0]
    (tmp_path / script).write_text(f"{head}for _ in range(3):\n{indent(text, '    ')}    optimizer.step()\n")
    assert cli.main(["predict", script, "--gpu", "T4"]) == 2
    assert "train.py raised AssertionError at train.py:14" in (told := capfd.readouterr().err)
    assert "guessed at train.py:14: a float is 1" in told
    assert cli.main(["predict", script, "--gpu", "T4", "--guess", "train.py:14=1.5", "--guess", "train.py:3=7"]) == 0
    out = capfd.readouterr().out
    assert "The number that train.py:14 asks for was given as 1.5." in out
    assert "Nothing asks for a number at train.py:3, so the 7 that was given for it had no effect." in out
    assert "guessed" not in out


@pytest.mark.parametrize("word", ["loss=1.5", "train.py:12", "train.py:12=high"])
def test_a_bad_guess_is_refused(script, word, capsys):
    assert cli.main(["predict", script, "--gpu", "T4", "--guess", word]) == 2
    assert f"--guess {word} is not LINE=NUMBER" in capsys.readouterr().err


def test_only_a_script_evaluates(script, capsys):
    assert cli.main(["predict", f"{script}:train", "--until", "evaluation"]) == 2
    assert "--until evaluation is for a script" in capsys.readouterr().err


def test_a_launcher_stands_behind_two_dashes_as_it_is_written(script, tmp_path, capfd):
    words = ["torchrun", "--nproc-per-node", "8", script, "--batch-size", "16"]
    assert cli.main(["predict", "--steps", "1", "--json", "trace.json", "--", *words]) == 0
    assert capfd.readouterr().out.startswith("train.py --batch-size 16 predicted on T4, rank 0 of 8\n")
    assert Trace.from_json((tmp_path / "trace.json").read_text()).world_size == 8


def test_a_script_is_measured(script, capfd):
    assert cli.main(["measure", script, "--steps", "1", "--device", "cpu", "--", "--batch-size=4"]) == 0
    assert capfd.readouterr().out.startswith("train.py --batch-size=4 measured on CPU")


def test_what_is_no_script_is_refused(script, capsys):
    assert cli.main(["predict", "nowhere.py"]) == 2
    assert "memlab: error: nowhere.py is not there" in capsys.readouterr().err


def test_after_sigterm_nothing_is_left(script, tmp_path):
    (tmp_path / "train.py").write_text("import time\nprint('waiting', flush=True)\ntime.sleep(60)")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, "-m", "memlab", "predict", script]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as process:
        assert process.stderr.readline() == b"waiting\n"  # that of the script's own process, which holds the pipe
        process.terminate()
        assert process.stderr.read() == b""
        assert process.wait() == 143
    assert list(temporary.iterdir()) == []
