"""Runs take turns, and who waits is told of what takes long."""

import threading
import warnings

import pytest

from memlab import measure, turns
from memlab.turns import turn
from tests.lab.loops import train


def enter():
    with turn(threading.Event(), None):
        pass


def do_while_another_has_its_turn(work, its_turn):
    """Do it while another thread is inside, which leaves a while after this one has begun to wait."""
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with its_turn:
            inside.set()
            leave.wait(0.5)

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    try:
        work()
    finally:
        leave.set()
        thread.join()


def test_waiting_for_a_run_that_measures_is_told():
    with pytest.warns(UserWarning, match="Another run is being measured") as warned:
        do_while_another_has_its_turn(lambda: measure(train, steps=1, device="cpu"), turn(threading.Event(), None))
    assert warned[0].filename == __file__  # the reader's line, not memlab's


@pytest.mark.parametrize(
    "its_turn",
    [
        pytest.param(lambda: turn(threading.Event(), None, brief=True), id="a prediction"),
        pytest.param(lambda: turns._measuring, id="one that has not said yet what it is"),
    ],
)
def test_waiting_for_a_prediction_is_not_told_for_it_is_brief(its_turn):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        do_while_another_has_its_turn(enter, its_turn())
