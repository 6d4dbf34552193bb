"""``python -m tests.lab.killed``: kernels with a panel that are killed, share a logbook or meet a full disk, as JSON.

They are forked from this process, which has loaded PyTorch for them all. To the logbook it is the same.
"""

import json
import os
import resource
import signal
import sys
import time

import torch

from memlab import logbook, measure, predict
from memlab.garbage import freeze_for_good
from memlab.lab.session import Session
from tests.lab.loops import train

KILLS = 20
RUNS = 5  # of each of two kernels that go on together


def make(title):
    choices = {"batch_size": (1, 64)}
    return Session(train, choices, steps=3, device="cpu", budget=None, gpu="T4", title=title)


def fork(work):
    """A process that does it, and a pipe that has a byte for each time that it told."""
    told, tell = os.pipe()
    if process := os.fork():
        os.close(tell)
        return process, told
    os.close(told)
    try:
        work(lambda: os.write(tell, b"."))
    finally:
        os._exit(0)


def run_for_ever(tell):
    session = make("killed")
    while True:
        session.run()
        tell()


def killed_in_mid_run():
    """Runs that had ended, and what the logbook has of them, when a kernel was killed at each of several moments."""
    ended = 0
    for moment in range(KILLS):
        process, told = fork(run_for_ever)
        ended += len(os.read(told, 1))  # the first run: from now on it may be anywhere
        time.sleep(moment * 0.003)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        while more := os.read(told, 1000):
            ended += len(more)
        os.close(told)
    entries, left_out = logbook.read()
    return {"ended": ended, "entries": len(entries), "left_out": left_out}


def two_together():
    """Entries of two kernels that write at the same time."""

    def several(title):
        session = make(title)
        for _ in range(RUNS):
            session.run()

    processes = [fork(lambda tell, title=title: several(title))[0] for title in ("one", "two")]
    for process in processes:
        os.waitpid(process, 0)
    titles = [entry.title for entry in logbook.read()[0]]
    return [titles.count("one"), titles.count("two")]


def on_a_full_disk():
    """Return the panel's message when the logbook has no room for a whole line, and what can be read of it."""
    before = len(logbook.read()[0])
    session = make("full")
    size = logbook.logbook_file().stat().st_size
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
    steps = len(session.run().steps)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    full = session.screen.note
    session.run()
    entries, _ = logbook.read()
    return {"steps": steps, "said": full, "later": session.screen.note.text, "more": len(entries) - before}


if __name__ == "__main__":
    # What a first run loads, and keeps, for all of them: it takes longer than the runs.
    torch.optim.SGD([torch.ones(1)])
    predict(train, gpu="T4", steps=1)
    measure(train, device="cpu", steps=1)
    freeze_for_good()
    json.dump([killed_in_mid_run(), two_together(), on_a_full_disk()], sys.stdout)
