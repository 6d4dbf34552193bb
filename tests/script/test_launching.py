"""Command lines that start a script, read by the launchers themselves; nothing is started here."""

import argparse
import types

import pytest

from memlab.errors import BadValue
from memlab.script.launching import read


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a script, and with a package in which there is one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for name in ("train.py", "package/__init__.py", "package/train.py", "package/__main__.py"):
        (tmp_path / name).write_text("")


@pytest.mark.parametrize(
    ("line", "started", "world_size"),
    [
        ("python train.py --lr 1", "train.py --lr 1", None),
        ("/usr/bin/python3.11 -u -W ignore train.py", "train.py", None),
        ("python -m package.train --lr 1", "package.train --lr 1", None),
        ("python -m package", "package", None),
        ("torchrun train.py", "train.py", 1),
        ("torchrun --nproc-per-node 8 --nnodes 1:2 train.py --nnodes 3", "train.py --nnodes 3", 16),
        ("torchrun --standalone --nproc_per_node=4 -m package.train x", "package.train x", 4),
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", "train.py", 2),
        ("python -m torch.distributed.launch --nproc-per-node=2 train.py x", "train.py --local-rank=0 x", 2),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.distributed.launch is an old way
def test_a_command_line_starts_a_script(line, started, world_size):
    launch = read(line.split())
    assert (repr(launch.command), launch.world_size, launch.command.environment) == (started, world_size, {})


@pytest.mark.parametrize(
    ("options", "world_size", "precision"),
    [
        ("", None, "no"),
        ("--num_processes 4 --mixed_precision bf16", 4, "bf16"),
        ("--use_fsdp --num_processes 8", 8, "no"),
    ],
)
def test_accelerate_tells_the_script_its_settings(options, world_size, precision):
    pytest.importorskip("accelerate")
    launch = read(["accelerate", "launch", *options.split(), "train.py", "--lr", "1"])
    assert (repr(launch.command), launch.world_size) == ("train.py --lr 1", world_size)
    assert launch.command.environment["ACCELERATE_MIXED_PRECISION"] == precision
    assert launch.command.environment.get("ACCELERATE_USE_FSDP") == ("true" if "fsdp" in options else None)
    assert launch.command.with_words("--amp").environment == launch.command.environment


def test_deepspeed_tells_the_script_its_rank(monkeypatch):
    parser = argparse.ArgumentParser()
    for name in ("num_gpus", "num_nodes"):
        parser.add_argument(f"--{name}", type=int, default=-1)
    for name in ("module", "no_local_rank"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    runner = types.SimpleNamespace(parse_args=parser.parse_args)
    monkeypatch.setattr("memlab.script.launching.import_module", lambda name: runner)
    launch = read(["deepspeed", "--num_gpus", "8", "train.py", "--deepspeed", "zero.json"])
    assert (repr(launch.command), launch.world_size) == ("train.py --local_rank=0 --deepspeed zero.json", 8)
    with pytest.raises(BadValue, match="give how many that are"):
        read(["deepspeed", "train.py"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "no script is given: give a file, or behind -- what starts it (python, torchrun, "),
        ("bash train.sh", "bash starts no script: "),
        ("python", "python alone starts no script: give python FILE"),
        ("python nowhere.py", "nowhere.py is not there (looked in "),
        ("python -m package.nowhere", "package.nowhere is no module (looked in "),
        ("torchrun --nproc-per-node gpu train.py", "--nproc-per-node gpu is what a machine has: give how many ranks"),
        ("accelerate config", "accelerate starts a script as accelerate launch FILE"),
    ],
)
def test_what_starts_no_script_is_one_sentence(line, words):
    with pytest.raises(BadValue) as caught:
        read(line.split())
    assert str(caught.value).startswith(words)


def test_a_launcher_that_is_not_installed_is_one_sentence(monkeypatch):
    def missing(name):
        raise ImportError("No module named 'deepspeed'")

    monkeypatch.setattr("memlab.script.launching.import_module", missing)
    with pytest.raises(BadValue, match=r"deepspeed is not installed here .*: install it, or write torchrun\."):
        read(["deepspeed", "train.py"])
