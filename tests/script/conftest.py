import sys
from textwrap import dedent

import pytest

from memlab.script.command import Command
from memlab.script.script_run import ScriptRun
from memlab.vgpu.gpu import VirtualGpu


@pytest.fixture
def own_main(monkeypatch):
    """A script that runs in this process leaves no trace in it."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture
def run_script(tmp_path, own_main):
    """``run_script(text, *arguments)`` gives the run of a script with this text, in this process."""

    def run_script(text, *arguments, device=None, steps=3, **options):
        path = tmp_path / "script.py"
        path.write_text(dedent(text))
        return ScriptRun(Command(path, *arguments), device or VirtualGpu("T4"), steps=steps, **options)

    return run_script
