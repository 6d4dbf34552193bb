import os
import subprocess
import sys

import pytest

from memlab import cli
from memlab.logbook import append, logbook_file
from tests.test_logbook import TRACE


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "logbook.jsonl"))


def test_the_newest_runs_are_shown_last(capsys):
    assert cli.main(["logbook"]) == 0
    assert "is empty: run a panel in a notebook" in capsys.readouterr().out
    for number in range(3):
        append(f"panel {number}", TRACE)
    assert cli.main(["logbook", "--last", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("panel 1, measured on a device: 1.00 KiB  loss 2.5  batch_size=8")
    assert "panel 2" in lines[1]


def test_no_orders_reach_the_terminal_and_left_out_lines_are_counted(capsys):
    append("\x1b[31mred\ud800", TRACE)
    with logbook_file().open("a") as file:
        file.write("half a li")
    assert cli.main(["logbook"]) == 0
    out, err = capsys.readouterr()
    assert r"\x1b[31mred\ud800, measured" in out
    assert "no runs, and were left out: 1." in err


@pytest.mark.skipif(os.name == "nt", reason="needs a shell with pipes")
def test_a_reader_that_goes_and_a_terminal_of_ascii():
    for _ in range(3000):
        append("Ἀθῆναι", TRACE)
    command = f"{sys.executable} -m memlab logbook --last 3000 | head -1"
    environment = os.environ | {"PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u1f08\u03b8" in done.stdout


def test_a_bad_number_is_refused(capsys):
    assert cli.main(["logbook", "--last", "0"]) == 2
    assert "--last 0 is not a number of runs" in capsys.readouterr().err
