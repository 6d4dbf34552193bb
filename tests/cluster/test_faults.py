"""Whatever ends a run: it is said which rank and why, and no process and no port is left."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import pytest

from memlab.cluster import ClusterRun, measure
from memlab.cluster.faults import failure
from memlab.cluster.size import cores
from memlab.errors import RankFailed
from memlab.forked import ADDRESS
from tests.cluster import faulty
from tests.cluster.processes import in_use, mark, marked, ports
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
SECONDS = 5  # in which a rank that was killed has been reported, where nobody else computes
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into Linux's process table"),
]


@pytest.fixture
def word(monkeypatch, tmp_path):
    """Every process of the test carries it. At the end there must be none. What is forked would carry another's."""
    monkeypatch.delenv(ADDRESS, raising=False)
    mark(monkeypatch, tmp_path.name)
    yield tmp_path.name
    assert marked(tmp_path.name) == []


def crowd():
    """Return how many processes compete for each core of this machine, one at least."""
    return max(1, os.getloadavg()[0] / cores())


def line_of(text):
    """Return the number of the line with this text in the file of the loops."""
    return next(i for i, line in enumerate(Path(faulty.__file__).read_text().splitlines(), 1) if text in line)


def test_a_killed_rank_is_named_and_nothing_is_left(word, tmp_path):
    run = ClusterRun(faulty.train, {"folder": str(tmp_path)}, steps=10**6)
    with run:
        steps = iter(run)
        next(steps)
        listened = ports(marked(word)) | ports([os.getpid()])
        assert len(marked(word)) == 3  # torchrun and two ranks
        os.kill(int(next(tmp_path.iterdir()).name.partition("-")[0]), signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(RankFailed, match=r"^rank \d was killed by SIGKILL after \d+ steps?, "):
            deque(steps)
    assert time.monotonic() - killed < SECONDS * crowd()
    assert listened
    assert not any(map(in_use, listened))


def test_an_exception_in_one_rank_comes_out_with_its_line_and_the_next_run_starts_clean(
    word, tmp_path, tmp_path_factory, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiler")))  # PyTorch keeps it, anyhow
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(RankFailed) as caught:
        measure(faulty.train, steps=10**6, fault="raises")
    said = "rank 1 raised ValueError: 7 layers do not divide into 2 stages"
    assert str(caught.value) == f"{said} (faulty.py, line {line_of('raise ValueError')})"
    assert "go_wrong(fault)" in caught.value.__notes__[0]  # the whole traceback
    assert [trace.rank for trace in measure(faulty.train)] == [0, 1]
    assert list(tmp_path.iterdir()) == []  # no logs of torchrun, which may have been killed


def test_a_hang_is_ended_and_each_rank_says_where_it_stands(word):
    with pytest.raises(RankFailed) as caught:
        measure(faulty.train, steps=10**6, fault="hangs", timeout=8)
    waits, sleeps = line_of("dist.all_reduce"), line_of("time.sleep")
    where = f"rank 0 at faulty.py, line {waits}, rank 1 at faulty.py, line {sleeps}"
    assert str(caught.value).startswith(f"ranks 0 and 1 have said nothing for 8 s ({where}): ")


MEASURE = "from memlab.cluster import measure; measure(train, steps=10**6, fault='hangs', folder={!r})"
PANEL = """
import threading
from memlab import Lab
lab = Lab(train, device="cpu", steps=10**6, world_size=[2])
threading.Thread(target=lab.run, kwargs=dict(fault="hangs", folder={!r}), daemon=True).start()
input()
"""


@pytest.mark.parametrize(
    ("code", "end"),
    [
        pytest.param(MEASURE, subprocess.Popen.kill, id="measure-SIGKILL"),
        pytest.param(PANEL, subprocess.Popen.terminate, id="panel-SIGTERM"),
        pytest.param(PANEL, lambda kernel: kernel.stdin.close(), id="panel-ends by itself"),
    ],
)
def test_ranks_do_not_outlive_the_kernel_that_started_them(code, end, word, tmp_path):
    whole = f"from tests.cluster.faulty import train\n{code.format(str(tmp_path))}"
    with subprocess.Popen(
        [sys.executable, "-c", whole], cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as kernel:
        # The step in which one of them sleeps for ever; a panel's own process writes too, as it predicts the run.
        wait_for(lambda: len([*tmp_path.glob("*-2")]) - len([*tmp_path.glob(f"{kernel.pid}-2")]) == 2)
        listened = ports(marked(word))
        end(kernel)
        ended = time.monotonic()
        kernel.wait()
    wait_for(lambda: not marked(word))
    assert time.monotonic() - ended < SECONDS * crowd()
    assert listened
    assert not any(map(in_use, listened))


SUMMARY = """
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 21477)  (SIGTERM)
-----------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {} (pid: 21478)
"""
LOST = {"time": 5.0, "type": "RuntimeError", "text": "Connection closed by peer", "line": None, "traceback": ""}
FIRST = LOST | {"time": 4.0, "type": "ValueError", "text": "7 layers", "file": "loop.py", "line": 3}


@pytest.mark.parametrize(
    ("errors", "code", "said"),
    [
        ({0: LOST}, -9, "rank 1 was killed by SIGKILL after 3 steps, as the system does when"),
        ({0: LOST}, -11, "rank 1 was killed by SIGSEGV after 3 steps: the other ranks"),
        ({}, -15, "rank 1 was killed by SIGTERM after 3 steps: the other ranks"),
        ({}, 3, "rank 1 ended after 3 steps with exit code 3 and no word: the other ranks"),
        ({0: LOST, 1: FIRST}, 1, "rank 1 raised ValueError: 7 layers (loop.py, line 3)"),
    ],
)
def test_the_cause_is_named_and_not_what_followed_from_it(errors, code, said):
    assert str(failure(errors, [SUMMARY.format(code)], "after 3 steps")).startswith(said)


def test_what_was_printed_last_is_kept_where_nothing_else_is_known():
    cause = failure({}, ["No module named 'torch'\n"], "before its first step had ended")
    assert "did not say why" in str(cause)
    assert cause.__notes__ == ["No module named 'torch'\n"]
