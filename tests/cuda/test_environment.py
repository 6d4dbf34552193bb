"""The environment with a CUDA build: made once, and an install that broke off is tried again."""

import subprocess

import pytest

from tests.cuda import environment
from tests.cuda.environment import python_with_cuda, requirements


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Record the commands that would be run; ``commands.broken`` makes pip break off."""

    class Commands(list):
        broken = False

    ran = Commands()

    def run(command, check):
        ran.append(command)
        if command[1:3] == ["-m", "venv"]:
            command[-1].mkdir(parents=True, exist_ok=True)
        elif ran.broken:
            raise KeyboardInterrupt

    monkeypatch.setenv("MEMLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_it_is_made_once(commands, tmp_path):
    python = python_with_cuda("2.13.0")
    assert python == tmp_path / "cuda-torch-2.13.0" / "bin" / "python"
    made = len(commands)
    assert python_with_cuda("2.13.0") == python
    assert len(commands) == made == 2


def test_an_install_that_broke_off_is_tried_again(commands):
    commands.broken = True
    with pytest.raises(KeyboardInterrupt):
        python_with_cuda("2.13.0")
    commands.broken = False
    python_with_cuda("2.13.0")
    assert len(commands) == 4


def test_it_is_made_anew_when_other_versions_are_wanted(commands, monkeypatch):
    python_with_cuda("2.13.0")
    monkeypatch.setattr(environment, "requirements", lambda torch: ["torch===2.13.0", "numpy==99"])
    python_with_cuda("2.13.0")
    assert len(commands) == 4


def test_it_has_a_cuda_build_and_what_the_tests_need():
    wanted = requirements("2.11.0")
    assert wanted[0] == "torch===2.11.0"
    assert {"numpy", "pytest", "jupyterlab", "nbval", "transformers"} <= {line.partition("==")[0] for line in wanted}
    assert not any(line.startswith(("torch==2", "ruff", "playwright")) for line in wanted[1:])
