"""Whatever a command is given, it ends in a result or in one sentence; the reader's own errors are shown as theirs."""

import random
import re
from pathlib import Path

import pytest

from memlab import cli
from memlab.cli import lab

SEED = 20
COMMANDS = 300
LOOPS = """
import torch

def train(device, *, batch_size=2, width=4, name="x"):
    model = torch.nn.Linear(width, width).to(device)
    for _ in range(4):
        loss = model(torch.ones(batch_size, width, device=device)).sum()
        loss.backward()
        yield loss

def positional(device, batch_size, /):
    yield torch.ones(())

def raising(device, *, batch_size=2):
    raise KeyError("of the reader")
    yield

def silent(device):
    return
    yield

def plain(device):
    return 3

def odd(device, **settings):
    yield torch.ones(2)

value = 3
"""
VALUES = (
    "1",
    "0",
    "-1",
    "64",
    "1e9",
    "1:4",
    "4:1",
    "a,b",
    "",
    "nan",
    "inf",
    "9" * 309,
    "[",
    "{}",
    "None",
    "True",
    "é",
    "1.5",
)
BUDGETS = ("1 KiB", "20 GiB", "20", "1,5 GiB", "-1", "9" * 309, "9" * 309 + " GiB", "nan", "", "GiB", "0")
ODD_FILES = (
    "",
    ".",
    "/",
    "folder",
    "gone/x.json",
    "n" * 300,
    "there.json/below.json",
    "/dev/null",
    "there.json",
)


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    (tmp_path / "loops.py").write_text(LOOPS)
    (tmp_path / "broken.py").write_text("def train(:\n")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    (tmp_path / "empty.py").touch()
    (tmp_path / "there.json").write_text("[1, 2")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "_run_jupyterlab", lambda options: None)


def words(draw: random.Random) -> list[str]:
    """A command that somebody might type, or never would."""
    targets = [
        f"loops.py:{name}" for name in ("train", "positional", "raising", "silent", "plain", "odd", "value", "no", "")
    ]
    targets += [
        "broken.py:train",
        "raises.py:train",
        "empty.py:train",
        "gone.py:train",
        "folder:train",
        ":",
        "",
        "n" * 300,
    ]
    settings = [f"{key}={draw.choice(VALUES)}" for key in ("batch_size", "width", "name", "device", "self", "1x", "")]
    options = {
        "--steps": (*VALUES[:6], "x"),
        "--budget": BUDGETS,
        "--json": ODD_FILES,
        "--gpu": ("T4", "t4", "H100", "", "X", "é"),
        "--world-size": ("1", "2", "0", "-3", "x", "1e3"),
        "--snapshot": ODD_FILES,
        "--nonsense": ("1",),
    }

    def some(names: tuple[str, ...]) -> list[str]:
        chosen = draw.sample(names, draw.randint(0, 2))
        return [word for name in chosen for word in (name, draw.choice(options[name]))]

    command = draw.choice(("measure", "predict", "predict", "fit", "explain", "logbook", "lab", "doctorr", ""))
    if command in ("measure", "predict", "fit"):
        known = {"measure": ("--steps", "--budget", "--json", "--nonsense"), "fit": ("--gpu", "--budget", "--steps")}
        names = known.get(command, tuple(options))
        return [
            command,
            draw.choice(targets[:1] * 12 + targets),
            *draw.sample(settings, draw.randint(0, 2)),
            *some(names),
        ]
    if command == "explain":
        return [command, draw.choice(ODD_FILES[1:])]
    return [command, *([draw.choice(ODD_FILES)] if command == "lab" else [])]


def ending(argv: list[str]) -> int | str:
    """The exit status, or the error that got through."""
    try:
        return cli.main(argv)
    except SystemExit as end:
        return end.code
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def test_every_command_ends_in_a_result_or_a_sentence(capsys):
    draw, wrong = random.Random(SEED), []
    for _ in range(COMMANDS):
        argv = words(draw)
        status = ending(argv)
        said = capsys.readouterr().err
        own = status == 1 and "loops.py" in said and "memlab/" not in said
        sentence = status == 2 and re.search(r"(?m)^(memlab|usage)", said) and "Traceback" not in said
        if not (own or status == 0 or sentence):
            wrong.append((argv, status, said[-200:]))
    assert wrong == [], "\n".join(str(one)[:600] for one in wrong)


def test_nothing_stands_where_it_was_not_asked_for(tmp_path):
    draw, before = random.Random(SEED + 1), {path.name for path in Path.cwd().iterdir()}
    for _ in range(30):
        ending([word for word in words(draw) if word not in ODD_FILES])
    assert {path.name for path in Path.cwd().iterdir()} - before <= {"memlab-notebooks", "__pycache__"}
