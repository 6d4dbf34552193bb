import pytest

from memlab import cli
from memlab.logbook import append
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


def test_a_bad_number_is_refused(capsys):
    assert cli.main(["logbook", "--last", "0"]) == 2
    assert "--last 0 is not a number of runs" in capsys.readouterr().err
