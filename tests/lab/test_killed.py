"""Kernels that are killed in mid-run, share a logbook, meet a full disk: what was written stays readable."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.killed import KILLS, RUNS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


@pytest.fixture(scope="module")
def happened(tmp_path_factory):
    """Return the report of ``tests.lab.killed``, run in a process of its own."""
    logbook = tmp_path_factory.mktemp("killed") / "logbook.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.killed"],
        env=os.environ | {"MEMLAB_LOGBOOK": str(logbook)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_of_a_kernel_that_is_killed_no_run_is_lost_that_had_ended(happened):
    killed, *_ = happened
    assert killed["ended"] >= KILLS
    assert killed["ended"] <= killed["entries"] <= killed["ended"] + KILLS  # logged, and killed before it was told
    assert killed["left_out"] <= KILLS  # a line each, at most


def test_two_kernels_write_one_logbook(happened):
    assert happened[1] == [RUNS, RUNS]


def test_a_full_disk_costs_the_line_alone_and_it_is_said(happened):
    full = happened[2]
    assert full["steps"] == 3
    assert "set MEMLAB_LOGBOOK to a file that can" in full["said"][0]
    assert full["said"][1]  # an alert
    assert full["later"] == ""
    assert full["more"] == 1
