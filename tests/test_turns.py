"""Runs take turns, and who waits is told of what takes long."""

import threading
import warnings

import pytest

from memlab.turns import turn


def entered_while_another_has_its_turn(**other):
    """Enter while another thread is inside, which leaves when this one begins to wait."""
    inside, leave = threading.Event(), threading.Event()

    def stay():
        with turn(threading.Event(), None, **other):
            inside.set()
            leave.wait(0.3)

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    try:
        with turn(threading.Event(), None):
            pass
    finally:
        leave.set()
        thread.join()


def test_waiting_for_a_run_that_measures_is_told():
    with pytest.warns(UserWarning, match="Another run is being measured"):
        entered_while_another_has_its_turn()


def test_waiting_for_a_prediction_is_not_told_for_it_is_brief():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entered_while_another_has_its_turn(brief=True)
