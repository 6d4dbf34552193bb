"""One thread, one job at a time, and no error that gets lost."""

import threading

import pytest

from memlab.lab.worker import Worker

SOON = 10


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
