"""Environments are made of a Python that runs."""

import sys

import pytest

from tests.environments import python_of


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
@pytest.mark.parametrize(("script", "runs"), [("#!/bin/sh\nexit 0\n", True), ("#!/bin/sh\nexit 127\n", False)])
def test_a_python_of_a_version_is_taken_if_it_runs(tmp_path, monkeypatch, script, runs):
    (tmp_path / "python3.12").write_text(script)
    (tmp_path / "python3.12").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert python_of("3.12") == ("python3.12" if runs else sys.executable)


def test_where_there_is_none_this_one_is_taken():
    assert python_of("3.1234") == sys.executable
