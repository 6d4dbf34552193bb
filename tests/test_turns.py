"""Runs take turns, and who waits is told of what takes long."""

import threading
import warnings

import pytest

from memlab import measure
from memlab.turns import turn
from tests.lab.loops import train


def enter():
    with turn(threading.Event(), None):
        pass


def do_while_another_has_its_turn(work=enter, **other):
    """Do it while another thread is inside, which leaves when this one begins to wait."""
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with turn(threading.Event(), None, **other):
            inside.set()
            leave.wait(0.3)

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
        do_while_another_has_its_turn(lambda: measure(train, steps=1, device="cpu"))
    assert warned[0].filename == __file__  # the reader's line, not memlab's


def test_waiting_for_a_prediction_is_not_told_for_it_is_brief():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        do_while_another_has_its_turn(brief=True)
