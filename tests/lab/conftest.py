"""A lab's worker outlives its test: what it still does would be seen by the next one."""

import weakref
from concurrent.futures import wait

import pytest

from memlab.lab import jobs as module
from memlab.lab.jobs import Worker
from tests.lab.loops import Slow
from tests.waiting import SOON


@pytest.fixture(autouse=True)
def _nothing_goes_on(monkeypatch):
    """When a test has ended, so have the jobs that it submitted."""
    jobs = weakref.WeakSet()  # an error would keep the tensors of its frames
    submit = Worker.submit

    def noted(worker, *given, **how):
        job = submit(worker, *given, **how)
        jobs.add(job)
        return job

    monkeypatch.setattr(Worker, "submit", noted)
    yield
    for job in list(jobs):
        job.stopping.set()
    while Slow.made:
        Slow.made.pop().step.release(1000)
    assert not wait(jobs, timeout=SOON).not_done


@pytest.fixture(autouse=True)
def _nobody_else_computes(monkeypatch):
    """Or what is done at rest would wait for other tests."""
    monkeypatch.setattr(module, "is_crowded", lambda: False)
