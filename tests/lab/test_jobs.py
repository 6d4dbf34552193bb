"""One thread, one job at a time, and no error that gets lost."""

import subprocess
import sys
import threading
import time

import pytest
import torch

from memlab.cluster.size import cores
from memlab.errors import Stopped
from memlab.lab import jobs as module
from memlab.lab.jobs import Worker, is_crowded
from tests.waiting import SOON, wait_for


def test_a_job_runs_in_a_daemon_thread_and_its_result_is_kept():
    thread = Worker().submit(lambda stopping: threading.current_thread()).result(SOON)
    assert thread.daemon
    assert thread is not threading.main_thread()


def test_an_exception_is_raised_again_by_whoever_asks_and_the_worker_lives_on():
    worker = Worker()
    failed = worker.submit(lambda stopping: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failed.result(SOON)
    assert worker.submit(lambda stopping: 7).result(SOON) == 7


def test_a_new_job_stops_the_one_before_and_waits_for_its_end():
    worker, order, begun = Worker(), [], threading.Event()

    def until_stopped(stopping):
        begun.set()
        assert stopping.wait(SOON)
        order.append("first ended")

    first = worker.submit(until_stopped)
    assert begun.wait(SOON)
    second = worker.submit(lambda stopping: order.append("second ran"))
    second.result(SOON)
    assert first.done()
    assert order == ["first ended", "second ran"]


def test_stop_says_whether_there_was_something_to_stop():
    worker = Worker()
    assert worker.stop() is False
    job = worker.submit(lambda stopping: stopping.wait(SOON))
    assert worker.stop() is True
    assert job.result(SOON) is True
    assert worker.stop() is False


def block(worker, name=None):
    """A job that goes on until it is stopped."""
    begun = threading.Event()

    def work(stopping):
        begun.set()
        while not stopping.is_set():
            time.sleep(0.01)
        return "stopped"

    job = worker.submit(work, name)
    assert begun.wait(SOON)
    return job


def test_a_prediction_may_end_while_the_newest_waits_and_those_between_are_left_out():
    worker, done, may_end, begun = Worker(), [], threading.Event(), threading.Event()

    def first(stopping):
        begun.set()
        assert may_end.wait(SOON)
        done.append("first")

    worker.submit(first, "first")
    assert begun.wait(SOON)
    left_out = worker.submit(lambda stopping: done.append("second"), "second")
    last = worker.submit(lambda stopping: done.append("third"), "third")
    assert left_out.result(SOON) is None
    may_end.set()
    last.result(SOON)
    assert done == ["first", "third"]


def test_a_prediction_that_takes_long_is_ended_for_the_newest(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    worker = Worker()
    slow = block(worker, "slow")
    assert worker.submit(lambda stopping: 7, "next").result(SOON) == 7
    assert slow.result() == "stopped"


def test_the_prediction_that_goes_on_is_not_begun_again():
    worker = Worker()
    job = block(worker, "same")
    other = worker.submit(lambda stopping: None, "other")
    assert worker.submit(lambda stopping: None, "same") is job
    assert other.done()
    assert not job.stopping.is_set()
    worker.stop()


def test_a_run_stops_predictions_at_once():
    worker = Worker()
    going_on, waiting = block(worker, "a"), worker.submit(lambda stopping: stopping.is_set(), "b")
    assert worker.submit(lambda stopping: 7).result(SOON) == 7
    assert going_on.result() == "stopped"
    assert waiting.result() is True


def test_at_rest_there_is_other_work_which_any_job_ends_but_of_its_own_name(monkeypatch):
    monkeypatch.setattr(module, "REST", 0.01)
    begun, ended = threading.Event(), []

    def idle(stopping):
        begun.set()
        while not stopping.is_set():
            time.sleep(0.01)
        ended.append("idle")

    worker = Worker(lambda: None if ended else (idle, "idle"))
    worker.rest()
    assert begun.wait(SOON)
    assert not worker.stop() or pytest.fail("nobody waits for it")
    worker.submit(lambda stopping: ended.append("job"), "job").result(SOON)
    assert ended == ["idle", "job"]

    begun.clear()
    ended.clear()
    worker.rest()
    assert begun.wait(SOON)
    assert worker.submit(lambda stopping: None, "idle").name == "idle"
    assert worker.works
    assert worker.stop()


def test_work_at_rest_waits_while_the_machine_is_crowded_and_jobs_do_not(monkeypatch):
    load, done = [1000.0], []
    monkeypatch.setattr(module, "REST", 0.01)
    monkeypatch.setattr(module, "is_crowded", is_crowded)
    monkeypatch.setattr(module.os, "getloadavg", lambda: (load[-1], 0.0, 0.0), raising=False)

    def at_rest():
        asked.release()
        return None if "rest" in done else (lambda stopping: done.append("rest"), "rest")

    asked = threading.Semaphore(0)
    worker = Worker(at_rest)
    worker.rest()
    assert asked.acquire(timeout=SOON)
    assert asked.acquire(timeout=SOON)
    worker.submit(lambda stopping: done.append("job")).result(SOON)
    assert done == ["job"]
    load.append(0.0)
    wait_for(lambda: worker._thread is None)
    assert done == ["job", "rest"]


def test_a_crowded_machine_has_more_to_do_than_cores_and_where_nobody_knows_it_has_not(monkeypatch):
    assert [crowded(monkeypatch, load) for load in (0.0, cores(), cores() + 0.1)] == [False, False, True]
    monkeypatch.delattr(module.os, "getloadavg")
    assert not is_crowded()


def crowded(monkeypatch, load):
    monkeypatch.setattr(module.os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    return is_crowded()


def test_a_job_of_another_worker_ends_work_at_rest_and_none_begins(monkeypatch):
    monkeypatch.setattr(module, "REST", 0.01)
    asked, ended = [], threading.Event()

    def idle(stopping):
        while not stopping.is_set():
            time.sleep(0.01)
        ended.set()

    def at_rest():
        asked.append(1)
        return (idle, "idle") if len(asked) == 1 else None

    worker, other = Worker(at_rest), Worker()
    worker.rest()
    wait_for(lambda: asked)
    job = block(other)
    assert ended.wait(SOON)
    wait_for(lambda: worker._thread is None)
    assert asked == [1]
    other.stop()
    job.result(SOON)


def test_the_thread_ends_when_there_is_nothing_to_do_and_another_begins(monkeypatch):
    monkeypatch.setattr(module, "REST", 0.01)
    worker = Worker()
    first = worker.submit(lambda stopping: threading.current_thread()).result(SOON)
    first.join(SOON)
    assert not first.is_alive()
    assert worker.submit(lambda stopping: 7).result(SOON) == 7


def test_a_job_that_does_not_end_is_broken_off_and_the_next_begins(monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.05)
    worker, begun = Worker(), threading.Event()

    def endless(stopping):
        with stopping.breakable():
            begun.set()
            while True:
                pass

    job = worker.submit(endless)
    assert begun.wait(SOON)
    assert worker.stop()
    with pytest.raises(Stopped):
        job.result(SOON)
    assert worker.submit(lambda stopping: 7).result(SOON) == 7


def test_a_job_that_ends_when_its_seconds_are_over_is_not_broken_off(monkeypatch):
    """Within PyTorch's C++ that may abort the process, as on a machine where thirty predict."""
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    monkeypatch.setattr(module, "GRACE", 1.0)
    worker, begun = Worker(), threading.Event()

    def slow(stopping):
        with stopping.breakable():
            begun.set()
            while not stopping.is_set():
                time.sleep(0.001)
            told = time.monotonic()
            while time.monotonic() < told + 0.3:
                pass
        return "ended"

    job = worker.submit(slow, "slow")
    assert begun.wait(SOON)
    worker.submit(lambda stopping: None, "next").result(SOON)
    assert job.result() == "ended"


def test_what_a_job_that_was_ended_leaves_switched_off_is_on_for_the_next():
    worker, begun = Worker(), threading.Event()

    def ended_within_no_grad(stopping):
        torch.set_grad_enabled(False)
        begun.set()
        assert stopping.wait(SOON)

    worker.submit(ended_within_no_grad)
    assert begun.wait(SOON)
    assert worker.submit(lambda stopping: torch.is_grad_enabled()).result(SOON)


def test_what_cannot_be_broken_off_is_told(monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.05)
    told, begun, may_end = threading.Event(), threading.Event(), threading.Lock()
    may_end.acquire()
    worker = Worker(on_stuck=told.set)

    def waits(stopping):
        with stopping.breakable():
            begun.set()
            may_end.acquire()  # outside of Python

    job = worker.submit(waits)
    assert begun.wait(SOON)
    worker.stop()
    assert told.wait(SOON)
    may_end.release()
    with pytest.raises(Stopped):
        job.result(SOON)


@pytest.mark.parametrize("last", ["", "worker.submit(next_work, 'b')"])
def test_a_job_is_ended_before_python_is_and_none_begins(last):
    """Or the process is aborted, where the thread is within PyTorch's C++ when Python takes it down."""
    program = (
        "import threading, time\n"
        "from memlab.lab.jobs import Worker\n"
        "begun = threading.Event()\n"
        "def work(stopping):\n"
        "    begun.set()\n"
        "    while not stopping.is_set():\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.2)\n"
        "    print('ended', flush=True)\n"
        "def next_work(stopping):\n"
        "    print('begun', flush=True)\n"
        "worker = Worker()\n"
        "worker.submit(work, 'a')\n"
        f"begun.wait(60)\n{last}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
